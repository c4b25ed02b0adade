// SPDX-License-Identifier: MIT

package mysqllock

import (
	"database/sql"
	"errors"
	"testing"

	"shop/locking"
	"shop/locking/locktest"
)

// counter is the protected number as one holder sees it, in its transaction.
type counter struct {
	t  *testing.T
	tx *sql.Tx
	n  int64
}

// counters opens the transactions of two holders: A, the old one, is late; B, the new one, is not.
func counters(t *testing.T) (db *sql.DB, a, b *counter) {
	t.Helper()
	db = newDB(t)
	exec(t, db, `CREATE TABLE counter AS SELECT 100 AS n`)
	must(t, MakeGuards(t.Context(), db, "counter"))
	return db, &counter{t: t, tx: begin(t, db, sql.LevelDefault)}, &counter{t: t, tx: begin(t, db, sql.LevelDefault)}
}

func (c *counter) guard(fence locking.Fence) {
	c.t.Helper()
	if err := Guard(c.t.Context(), c.tx, "counter", fence); err != nil {
		c.t.Error(err)
	}
}

func (c *counter) read() {
	c.t.Helper()
	if err := c.tx.QueryRowContext(c.t.Context(), `SELECT n FROM counter`).Scan(&c.n); err != nil {
		c.t.Error(err)
	}
}

func (c *counter) add(n int64) {
	c.t.Helper()
	_, err := c.tx.ExecContext(c.t.Context(), `UPDATE counter SET n = ?`, c.n+n)
	if err == nil {
		err = c.tx.Commit()
	}
	if err != nil {
		c.t.Error(err)
	}
}

// Both read 100.
func TestGuard_AtTheWriteAloneLosesAnUpdate(t *testing.T) {
	t.Parallel()
	db, a, b := counters(t)
	_, _ = b.tx.ExecContext(t.Context(), `SET innodb_snapshot_isolation = OFF`) // only some MariaDBs have it
	a.read()
	b.read()
	a.guard(5)
	a.add(10)
	b.guard(6) // passes, since 6 is newer, but B has read before A wrote
	b.add(1)
	if n := number(t, db, `SELECT n FROM counter`); n != 101 {
		t.Errorf("%d, want 101: A's 10 must be lost, or the test shows nothing", n)
	}
}

// B guards before it reads, but an earlier read of another table has fixed what it sees. PostgreSQL would
// refuse it with 40001 at this isolation level.
func TestGuard_AfterAnySnapshotLosesAnUpdate(t *testing.T) {
	t.Parallel()
	db, a, b := counters(t)
	exec(t, db, `CREATE TABLE settings AS SELECT 'unrelated' AS name`)
	_, _ = b.tx.ExecContext(t.Context(), `SET innodb_snapshot_isolation = OFF`) // only some MariaDBs have it
	number(t, b.tx, `SELECT COUNT(*) FROM settings`)
	a.guard(5)
	a.read()
	a.add(10)
	b.guard(6)
	b.read()
	b.add(1)
	if n := number(t, db, `SELECT n FROM counter`); n != 101 {
		t.Errorf("%d, want 101: A's 10 must be lost, or the test shows nothing", n)
	}
}

// MariaDB with this setting, the default from 11.6 on, refuses it.
func TestGuard_AfterAnySnapshotFailsWithSnapshotIsolation(t *testing.T) {
	t.Parallel()
	_, a, b := counters(t)
	if _, err := b.tx.ExecContext(t.Context(), `SET innodb_snapshot_isolation = ON`); code(err) == 1193 {
		return // MySQL, which does not have it
	}
	b.read()
	a.guard(5)
	a.add(10)
	if err := Guard(t.Context(), b.tx, "counter", 6); code(err) != 1020 || errors.Is(err, locking.ErrStale) {
		t.Errorf("got %v, want the server's 1020", err)
	}
}

func TestGuard_BeforeTheReadLosesNoUpdate(t *testing.T) {
	t.Parallel()
	db, a, b := counters(t)
	a.guard(5)
	waits := blocked(t, db, b.tx, "guards")
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.guard(6) // waits for A
		b.read()
		b.add(1)
	}()
	locktest.Eventually(t, "B waits for A", waits)
	a.read()
	a.add(10)
	<-done
	if n := number(t, db, `SELECT n FROM counter`); n != 111 {
		t.Errorf("%d, want 111", n)
	}
}
