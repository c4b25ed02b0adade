// SPDX-License-Identifier: MIT

package etcdlock

import (
	"testing"

	"shop/locking/locktest"
)

var promises = locktest.Promises{Expires: true, Fences: true, FencePersists: true, FIFO: true, MultiKey: true, MinTTL: minTTL}

func TestContract(t *testing.T) {
	t.Parallel()
	locktest.Run(t, target{endpoints: endpoints(t)}.open, promises)
}
