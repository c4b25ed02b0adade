// SPDX-License-Identifier: MIT

package wrong

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
)

func sqlstate(err error) string {
	var pg *pgconn.PgError
	errors.As(err, &pg)
	if pg == nil {
		return ""
	}
	return pg.Code
}

// newSessions makes a schema with the function, and connections to it.
func newSessions(t *testing.T, n int) (d *pgtest.Database, sessions []*pgx.Conn) {
	t.Helper()
	d = pgtest.New(t)
	d.Exec(SessionLockWithin)
	for range n {
		conn, err := pgx.Connect(t.Context(), d.URL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		sessions = append(sessions, conn)
	}
	return d, sessions
}

// lockWithin calls the function.
func lockWithin(t *testing.T, session *pgx.Conn, key int64, limit time.Duration) (locked bool) {
	t.Helper()
	if err := session.QueryRow(t.Context(), `SELECT session_lock_within($1, $2)`, key, limit.Milliseconds()).Scan(&locked); err != nil {
		t.Fatal(err)
	}
	return locked
}

// A4: the limit is for the lock alone, and reaches a row that has nothing to do with it.
func TestSessionLockWithin_LeavesItsLimitInTheSession(t *testing.T) {
	t.Parallel()
	d, sessions := newSessions(t, 1)
	d.Exec(`CREATE TABLE rows AS SELECT 1 AS id`)
	key := d.Number(`SELECT pg_my_temp_schema()::bigint + hashtextextended(current_schema(), 0)`)
	if !lockWithin(t, sessions[0], key, 50*time.Millisecond) {
		t.Fatal("the lock is free, and was not granted")
	}
	var limit string
	if err := sessions[0].QueryRow(t.Context(), `SHOW lock_timeout`).Scan(&limit); err != nil || limit != "50ms" {
		t.Errorf("lock_timeout is %q, %v, want 50ms: the function must have leaked it", limit, err)
	}
	d.Hold(`SELECT FROM rows FOR UPDATE`)
	if _, err := sessions[0].Exec(t.Context(), `SELECT FROM rows FOR UPDATE`); sqlstate(err) != "55P03" {
		t.Errorf("the row: %v, want lock_not_available, which no caller asked for", err)
	}
}

// A4: each session has a lock, and wants the other's.
func TestSessionLockWithin_TakesADeadlockForTheEndOfItsLimit(t *testing.T) {
	t.Parallel()
	d, sessions := newSessions(t, 2)
	one := d.Number(`SELECT hashtextextended(current_schema(), 1)`)
	two := d.Number(`SELECT hashtextextended(current_schema(), 2)`)
	const limit = time.Minute
	for n, after := range []string{"1min", "100ms"} { // the second one looks for a deadlock
		if _, err := sessions[n].Exec(t.Context(), `SELECT set_config('deadlock_timeout', $1, false)`, after); err != nil {
			t.Fatal(err)
		}
	}
	lockWithin(t, sessions[0], one, limit)
	lockWithin(t, sessions[1], two, limit)
	first := locktest.Beside(func() (bool, error) { return lockWithin(t, sessions[0], two, limit), nil })
	pid := sessions[0].PgConn().PID()
	locktest.Eventually(t, "the first session waits", func() bool {
		return d.Number(`SELECT count(*) FROM pg_locks WHERE pid = $1 AND NOT granted`, int64(pid)) == 1
	})
	start := time.Now()
	if lockWithin(t, sessions[1], one, limit) {
		t.Error("the second session has the lock of the first")
	}
	if took := time.Since(start); took > limit/2 {
		t.Errorf("it waited %v: that was no deadlock", took)
	}
	if _, err := sessions[1].Exec(t.Context(), `SELECT pg_advisory_unlock($1)`, two); err != nil {
		t.Fatal(err)
	}
	if locked, err := (<-first).Pair(); err != nil || !locked {
		t.Errorf("the first session: %v, %v, want its lock once the second has released", locked, err)
	}
}

// Both guests have found no row, and so locked nothing.
func TestBook_ARowThatIsNotThereIsNotLocked(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec(`CREATE TABLE bookings (seat text NOT NULL, guest text NOT NULL)`)
	a, b := newTx(t, d), newTx(t, d)
	booked := false
	first := must[bool](t)(Book(t.Context(), a, "12A", "anna", func() {
		booked = must[bool](t)(Book(t.Context(), b, "12A", "bob", func() {}))
		if err := b.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}))
	if err := a.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := d.Number(`SELECT count(*) FROM bookings`); !first || !booked || n != 2 {
		t.Errorf("anna %v, bob %v, %d bookings of one seat, want 2", first, booked, n)
	}
	if must[bool](t)(Book(t.Context(), newTx(t, d), "12A", "carol", func() {})) {
		t.Error("carol has booked a seat whose row is there")
	}
}

func newTx(t *testing.T, d *pgtest.Database) pgx.Tx {
	t.Helper()
	tx, err := d.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// An order has nothing to do with the user's new address, and waits for it. FOR NO KEY UPDATE would let it pass.
func TestLockUser_MakesUnrelatedWorkWait(t *testing.T) {
	t.Parallel()
	for lock, want := range map[string]string{LockUser: "55P03", `SELECT FROM users WHERE id = $1 FOR NO KEY UPDATE`: ""} {
		d := pgtest.New(t)
		d.Exec(`CREATE TABLE users (id integer PRIMARY KEY); CREATE TABLE orders (user_id integer REFERENCES users); INSERT INTO users VALUES (1)`)
		d.Hold(lock, 1)
		order := pgtest.Pool(t, d.URL, "lock_timeout=100")
		if _, err := order.Exec(t.Context(), `INSERT INTO orders VALUES (1)`); sqlstate(err) != want {
			t.Errorf("%s: the order: %v, want %q", lock, err, want)
		}
	}
}

// The last unit is locked by a buyer who does not buy it.
func TestTakeUnit_SaysSoldOutWhileThereIsStock(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec(`CREATE TABLE stock_units (id integer, order_id text); INSERT INTO stock_units VALUES (1)`)
	release := d.Hold(`SELECT FROM stock_units FOR UPDATE`)
	if !must[bool](t)(TakeUnit(t.Context(), d.Pool, "anna")) {
		t.Error("anna has the unit that another buyer has locked")
	}
	release()
	if n := d.Number(`SELECT count(*) FROM stock_units WHERE order_id IS NULL`); n != 1 {
		t.Errorf("%d units are left, want 1: anna was turned away for nothing", n)
	}
	if must[bool](t)(TakeUnit(t.Context(), d.Pool, "bob")) {
		t.Error("bob was turned away too")
	}
}
