// SPDX-License-Identifier: MIT

package filelock

import (
	"testing"

	"shop/locking/locktest"
)

// promises of this store. It does not expire: the kernel frees the keys with the process.
// Not FIFO: the first request after the release is granted.
var promises = locktest.Promises{Fences: true, FencePersists: true, MultiKey: true}

func TestContract(t *testing.T) {
	t.Parallel()
	locktest.Run(t, target{}.open, promises)
}
