// SPDX-License-Identifier: MIT

package pglock

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"shop/locking"
)

// counter is the protected number as one holder sees it, in its transaction.
type counter struct {
	t  *testing.T
	tx pgx.Tx
	n  int64
}

func (c *counter) guard(fence locking.Fence) {
	c.t.Helper()
	if err := Guard(c.t.Context(), c.tx, "counter", fence); err != nil {
		c.t.Error(err)
	}
}

func (c *counter) read() {
	c.t.Helper()
	if err := c.tx.QueryRow(c.t.Context(), `SELECT n FROM counter`).Scan(&c.n); err != nil {
		c.t.Error(err)
	}
}

func (c *counter) add(n int64) {
	c.t.Helper()
	_, err := c.tx.Exec(c.t.Context(), `UPDATE counter SET n = $1`, c.n+n)
	if err == nil {
		err = c.tx.Commit(c.t.Context())
	}
	if err != nil {
		c.t.Error(err)
	}
}

// A, the old holder, is late; B, the new one, is not. Both read 100.
func TestGuard_AtTheWriteAloneLosesAnUpdate(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	exec(t, pool, `CREATE TABLE counter AS SELECT 100::bigint AS n`)
	a, b := &counter{t: t, tx: begin(t, pool, pgx.ReadCommitted)}, &counter{t: t, tx: begin(t, pool, pgx.ReadCommitted)}
	a.read()
	b.read()
	a.guard(5)
	a.add(10)
	b.guard(6) // passes, since 6 is newer, but B has read before A wrote
	b.add(1)
	if n := number(t, pool, `SELECT n FROM counter`); n != 101 {
		t.Errorf("%d, want 101: A's 10 must be lost, or the test shows nothing", n)
	}
}

func TestGuard_BeforeTheReadLosesNoUpdate(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	exec(t, pool, `CREATE TABLE counter AS SELECT 100::bigint AS n`)
	a, b := &counter{t: t, tx: begin(t, pool, pgx.ReadCommitted)}, &counter{t: t, tx: begin(t, pool, pgx.ReadCommitted)}
	a.guard(5)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.guard(6) // waits for A
		b.read()
		b.add(1)
	}()
	awaitBlocked(t, pool, b.tx)
	a.read()
	a.add(10)
	<-done
	if n := number(t, pool, `SELECT n FROM counter`); n != 111 {
		t.Errorf("%d, want 111", n)
	}
}
