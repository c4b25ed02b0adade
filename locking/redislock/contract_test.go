// SPDX-License-Identifier: MIT

package redislock

import (
	"testing"

	"shop/locking/locktest"
	"shop/locking/redislock/redistest"
)

// promises of this store. Not FIFO: the first request after the release is granted.
var promises = locktest.Promises{Expires: true, Fences: true, FencePersists: true, MultiKey: true, MinTTL: TTLMin}

func TestContract(t *testing.T) {
	t.Parallel()
	locktest.Run(t, target{Target: redistest.Shared(t)}.open, promises)
}
