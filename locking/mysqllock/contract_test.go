// SPDX-License-Identifier: MIT

package mysqllock

import (
	"testing"

	"shop/locking/locktest"
	"shop/locking/servertest"
)

// promises of a Store. Not FIFO: after a release, the first request is granted.
var promises = locktest.Promises{Expires: true, Fences: true, FencePersists: true, MultiKey: true, MinTTL: TTLMin}

func TestContract(t *testing.T) {
	t.Parallel()
	locktest.Run(t, target{dsn: servertest.Env(t, env)}.open, promises)
}

// sessionPromises of NewSessions. The server's own queue is FIFO, although MySQL's manual leaves the
// order undefined.
var sessionPromises = locktest.Promises{FIFO: true}

func TestSessionContract(t *testing.T) {
	t.Parallel()
	locktest.Run(t, sessions{}.open, sessionPromises)
}
