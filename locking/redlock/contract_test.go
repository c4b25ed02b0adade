package redlock

import (
	"testing"

	"shop/locking/locktest"
)

// promises of this store: a lease expires, and that is all. It has no fence, one key, and
// no order of waiters.
var promises = locktest.Promises{Expires: true, MinTTL: TTLMin}

func TestContract(t *testing.T) {
	locktest.Slow(t, "a lock that docs advise against")
	t.Parallel()
	locktest.Run(t, target{}.open, promises)
}
