// SPDX-License-Identifier: MIT

package mongolock

import (
	"testing"

	"shop/locking/locktest"
)

// promises of this store. Not FIFO: the first request after the release is granted.
// Not MultiKey: one step changes one document.
var promises = locktest.Promises{Expires: true, Fences: true, FencePersists: true, MinTTL: TTLMin}

func TestContract(t *testing.T) {
	t.Parallel()
	locktest.Run(t, target{url: mongoURL(t)}.open, promises)
}
