// SPDX-License-Identifier: MIT

package pglock

import (
	"testing"

	"shop/locking/locktest"
	"shop/locking/servertest"
)

// promises of a Store. Not FIFO: after a release, the first request is granted.
var promises = locktest.Promises{Expires: true, Fences: true, FencePersists: true, MultiKey: true, MinTTL: TTLMin}

func TestContract(t *testing.T) {
	t.Parallel()
	locktest.Run(t, target{url: servertest.Env(t, "SHOP_POSTGRES_URL")}.open, promises)
}

// sessionPromises of NewSessions: PostgreSQL's own queue is FIFO. The suite's waiters have a Store each, so a process each.
var sessionPromises = locktest.Promises{FIFO: true}

// The suite holds about a hundred keys at once, each on a connection: too many for a shared server.
func TestSessionContract(t *testing.T) {
	t.Parallel()
	_, url := startServer(t)
	locktest.Run(t, sessions{url: url}.open, sessionPromises)
}
