// SPDX-License-Identifier: MIT

package zklock

import (
	"testing"

	"shop/locking/locktest"
)

var promises = locktest.Promises{Expires: true, Fences: true, FencePersists: true, FIFO: true, MinTTL: minTTL}

func TestContract(t *testing.T) {
	t.Parallel()
	locktest.Run(t, shared(t).open, promises)
}
