// SPDX-License-Identifier: MIT

package pglock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/locktest"
)

// pair opens two transactions.
func pair(t *testing.T) (*pgxpool.Pool, pgx.Tx, pgx.Tx) {
	t.Helper()
	pool := newPool(t)
	return pool, begin(t, pool, pgx.ReadCommitted), begin(t, pool, pgx.ReadCommitted)
}

// unique returns a key that no other test locks: advisory locks are those of the whole database.
func unique(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	return pool.Config().ConnConfig.RuntimeParams["search_path"]
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestXactLock_IsHeldUntilTheEndOfTheTransaction(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(pgx.Tx, context.Context) error{"commit": pgx.Tx.Commit, "rollback": pgx.Tx.Rollback} {
		pool, holder, waiter := pair(t)
		key := unique(t, pool)
		must(t, XactLock(t.Context(), holder, key))
		must(t, XactLock(t.Context(), holder, key)) // the holder has it already
		locktest.WantBusy(t, TryXactLock(t.Context(), waiter, key))
		must(t, TryXactLock(t.Context(), waiter, key+"another"))
		locked := locktest.Beside(func() (any, error) { return nil, XactLock(t.Context(), waiter, key) })
		awaitBlocked(t, pool, waiter)
		must(t, end(holder, t.Context()))
		if _, err := (<-locked).Pair(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestXactLockRow_IsApartFromXactLockAndTakesEveryOid(t *testing.T) {
	t.Parallel()
	pool, holder, other := pair(t)
	must(t, XactLockRow(t.Context(), holder, "guards", 7))
	locked := locktest.Beside(func() (any, error) { return nil, XactLockRow(t.Context(), other, "guards", 7) })
	awaitBlocked(t, pool, other)

	third := begin(t, pool, pgx.ReadCommitted)
	must(t, XactLockRow(t.Context(), third, "guards", 8))
	must(t, XactLockRow(t.Context(), third, "locks", 7))
	var same int64 // as one integer
	must(t, third.QueryRow(t.Context(), `SELECT 'guards'::regclass::oid::bigint << 32 | 7`).Scan(&same))
	if number(t, pool, `SELECT pg_try_advisory_xact_lock($1)::int`, same) != 1 {
		t.Error("the form of one integer collides with that of two")
	}
	must(t, holder.Commit(t.Context()))
	if _, err := (<-locked).Pair(); err != nil {
		t.Error(err)
	}
	if n := number(t, pool, `SELECT '4294967295'::oid::int4`); n != -1 {
		t.Errorf("the greatest oid is %d, want -1", n)
	}
	if _, err := pool.Exec(t.Context(), `SELECT '4294967295'::oid::bigint::int4`); code(err) != "22003" {
		t.Errorf("by way of bigint: %v, want that it is out of range", err)
	}
}

// The transaction continues after the limit, with the lock_timeout that it had.
func TestXactLockWithin_ReturnsBusyAndLeavesTheTransactionAsItWas(t *testing.T) {
	t.Parallel()
	pool, holder, waiter := pair(t)
	key := unique(t, pool)
	must(t, XactLock(t.Context(), holder, key))
	for _, timeout := range []string{"0", "7s"} {
		_, err := waiter.Exec(t.Context(), `SET lock_timeout = '`+timeout+`'`)
		must(t, err)
		asked := time.Now()
		locktest.WantBusy(t, XactLockWithin(t.Context(), waiter, key, 50*time.Millisecond))
		if took := time.Since(asked); took < 50*time.Millisecond || took > 5*time.Second {
			t.Errorf("gave up after %v, want 50 ms", took)
		}
		must(t, XactLockWithin(t.Context(), waiter, key+timeout, 50*time.Millisecond))
		var after string
		must(t, waiter.QueryRow(t.Context(), `SHOW lock_timeout`).Scan(&after))
		if after != timeout {
			t.Errorf("lock_timeout is %q after a time-out and a lock, was %q", after, timeout)
		}
	}
	must(t, holder.Commit(t.Context()))
	must(t, XactLockWithin(t.Context(), waiter, key, 50*time.Millisecond))
	err := TryXactLock(t.Context(), begin(t, pool, pgx.ReadCommitted), key)
	if locktest.WantBusy(t, err); err == nil || !strings.Contains(err.Error(), key) {
		t.Errorf("got %v, want the key %q in it", err, key)
	}
	for _, limit := range []time.Duration{0, -1, time.Microsecond, 1 << 62} {
		if err := XactLockWithin(t.Context(), waiter, key, limit); err == nil || errors.Is(err, locking.ErrBusy) {
			t.Errorf("limit %v: got %v, want an error that is not ErrBusy", limit, err)
		}
	}
}

// The same for a session: a rollback does not release its lock.
func TestSessionLockWithin_ReturnsFalseAndLeavesTheSessionAsItWas(t *testing.T) {
	t.Parallel()
	pool, holder, waiter := pair(t)
	key := Hash(unique(t, pool))
	within := func(tx pgx.Tx) (locked bool) {
		t.Helper()
		must(t, tx.QueryRow(t.Context(), `SELECT session_lock_within($1, 50)`, key).Scan(&locked))
		return locked
	}
	if !within(holder) || within(waiter) {
		t.Error("want the lock for the first session only")
	}
	must(t, holder.Rollback(t.Context()))
	if within(waiter) {
		t.Error("the rollback has released the lock")
	}
	_, err := waiter.Exec(t.Context(), `SELECT pg_terminate_backend($1, 10000)`, holder.Conn().PgConn().PID())
	must(t, err)
	if !within(waiter) {
		t.Error("the end of the session has not released the lock")
	}
	var timeout string
	must(t, waiter.QueryRow(t.Context(), `SELECT current_setting('lock_timeout') FROM (SELECT pg_advisory_unlock($1)) AS u`, key).Scan(&timeout))
	if timeout != "0" {
		t.Errorf("lock_timeout is %q afterwards", timeout)
	}
}

// A deadlock is no time-out: the function must not swallow it.
func TestXactLockWithin_ReportsADeadlock(t *testing.T) {
	t.Parallel()
	pool, a, b := pair(t)
	key := unique(t, pool)
	must(t, XactLock(t.Context(), a, key+"1"))
	must(t, XactLock(t.Context(), b, key+"2"))
	for _, tx := range []pgx.Tx{a, b} { // the server looks for deadlocks after this time
		_, err := tx.Exec(t.Context(), `SET LOCAL deadlock_timeout = '100ms'`)
		must(t, err)
	}
	first := locktest.Beside(func() (any, error) { return nil, XactLockWithin(t.Context(), a, key+"2", 10*time.Second) })
	awaitBlocked(t, pool, a)
	err := XactLockWithin(t.Context(), b, key+"1", 10*time.Second)
	_ = b.Rollback(t.Context())
	_, other := (<-first).Pair()
	if (code(err) == "40P01") == (code(other) == "40P01") || errors.Is(err, locking.ErrBusy) || errors.Is(other, locking.ErrBusy) {
		t.Errorf("got %v and %v, want one deadlock (40P01)", other, err)
	}
}

func TestLockRow_DoesNotWait(t *testing.T) {
	t.Parallel()
	pool, holder, other := pair(t)
	must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return MakeRow(t.Context(), tx, "k") }))
	must(t, LockRow(t.Context(), holder, "k"))
	savepoint, err := other.Begin(t.Context())
	must(t, err)
	err = LockRow(t.Context(), savepoint, "k")
	locktest.WantBusy(t, err)
	if code(err) != "55P03" {
		t.Errorf("%v, want the server's error in it", err)
	}
	must(t, savepoint.Rollback(t.Context()))
	if err := LockRow(t.Context(), other, "K"); !errors.Is(err, ErrNoRow) {
		t.Errorf("without a row: %v, want ErrNoRow", err)
	}
	must(t, holder.Rollback(t.Context()))
	must(t, LockRow(t.Context(), other, "k"))
}

// The trap of INSERT … ON CONFLICT DO NOTHING, then SELECT … FOR UPDATE NOWAIT: the insert waits.
func TestMakeRow_WaitsForTheTransactionThatHasAddedTheRow(t *testing.T) {
	t.Parallel()
	pool, first, second := pair(t)
	must(t, MakeRow(t.Context(), first, "new"))
	must(t, LockRow(t.Context(), first, "new"))
	locked := locktest.Beside(func() (any, error) {
		return nil, errors.Join(MakeRow(t.Context(), second, "new"), LockRow(t.Context(), second, "new"))
	})
	awaitBlocked(t, pool, second)
	must(t, first.Commit(t.Context()))
	if _, err := (<-locked).Pair(); err != nil {
		t.Errorf("after the wait: %v", err)
	}
}

func TestTryXactLease_NeedsNoRowAndDoesNotWait(t *testing.T) {
	t.Parallel()
	store, pool := newStore(t, time.Minute)
	key := unique(t, pool)
	try := func(tx pgx.Tx, owner string) (locking.Lease, error) {
		return TryXactLease(t.Context(), tx, key, owner, time.Minute)
	}
	take := func(owner string) (lease locking.Lease, err error) {
		return lease, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { lease, err = try(tx, owner); return err })
	}
	busy := func(_ locking.Lease, err error) { t.Helper(); locktest.WantBusy(t, err) }

	first := begin(t, pool, pgx.ReadCommitted)
	_, err := try(first, "me")
	must(t, err)
	busy(take("another")) // the row is not committed
	must(t, first.Rollback(t.Context()))
	lease, err := take("me")
	must(t, err)
	busy(store.TryAcquire(t.Context(), key))

	refused := begin(t, pool, pgx.ReadCommitted)
	busy(try(refused, "another"))
	lease, err = store.Renew(t.Context(), lease) // does not wait for refused to end
	must(t, err)
	must(t, refused.Rollback(t.Context()))

	again, err := take("me")
	if err != nil || again.Fence != lease.Fence {
		t.Errorf("taken again by its owner: %+v, %v, want fence %d", again, err, lease.Fence)
	}
	exec(t, pool, `UPDATE locks SET expires = clock_timestamp()`)
	next, err := take("another")
	if err != nil || next.Fence <= lease.Fence {
		t.Errorf("after the TTL: %+v, %v, want a fence above %d", next, err, lease.Fence)
	}
	if err := store.Release(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("release after the TTL: %v, want ErrLost", err)
	}
	must(t, store.Release(t.Context(), next))
}

// While a Store's request has the row, the number that was drawn before the wait would be an older fence.
func TestTryXactLease_FenceIsDrawnAfterTheWaitForAStore(t *testing.T) {
	t.Parallel()
	store, pool := newStore(t, time.Minute)
	key := unique(t, pool)
	lease, err := store.TryAcquire(t.Context(), key)
	must(t, err)
	must(t, store.Release(t.Context(), lease))
	row, tx := begin(t, pool, pgx.ReadCommitted), begin(t, pool, pgx.ReadCommitted)
	_, err = row.Exec(t.Context(), `UPDATE locks SET fence = nextval('locks_fence')`)
	must(t, err)
	granted := locktest.Beside(func() (locking.Lease, error) { return TryXactLease(t.Context(), tx, key, "me", time.Minute) })
	awaitBlocked(t, pool, tx)
	_, err = row.Exec(t.Context(), `UPDATE locks SET fence = nextval('locks_fence')`)
	must(t, err)
	must(t, row.Commit(t.Context()))
	got, err := (<-granted).Pair()
	if seen := locking.Fence(number(t, pool, `SELECT fence FROM locks`)); err != nil || got.Fence <= seen {
		t.Errorf("fence %d, %v, want one above %d", got.Fence, err, seen)
	}
}

func TestTryXactLease_RefusesWhatIsNoLease(t *testing.T) {
	t.Parallel()
	pool, tx, _ := pair(t)
	key := unique(t, pool)
	if _, err := TryXactLease(t.Context(), tx, key, "", time.Minute); !errors.Is(err, ErrNoOwner) {
		t.Errorf("no owner: %v, want ErrNoOwner", err)
	}
	for _, ttl := range []time.Duration{0, TTLMin - time.Millisecond, TTLMin + time.Microsecond} {
		if _, err := TryXactLease(t.Context(), tx, key, "me", ttl); err == nil {
			t.Errorf("TTL %v: no error", ttl)
		}
	}
}

func TestXactLocks_RefuseAutocommitAndInvalidKeys(t *testing.T) {
	t.Parallel()
	pool, tx, _ := pair(t)
	conn, err := pool.Acquire(t.Context())
	must(t, err)
	defer conn.Release()
	for name, lock := range map[string]func(context.Context, Tx, string) error{
		"XactLock": XactLock, "TryXactLock": TryXactLock, "MakeRow": MakeRow, "LockRow": LockRow,
		"XactLockWithin": func(ctx context.Context, tx Tx, key string) error { return XactLockWithin(ctx, tx, key, time.Second) },
		"TryXactLease": func(ctx context.Context, tx Tx, key string) error {
			_, err := TryXactLease(ctx, tx, key, "me", time.Minute)
			return err
		},
		"XactLockRow": func(ctx context.Context, tx Tx, key string) error { return XactLockRow(ctx, tx, key, 1) },
	} {
		if err := lock(t.Context(), conn, "guards"); !errors.Is(err, ErrNoTx) {
			t.Errorf("%s in autocommit: %v, want ErrNoTx", name, err)
		}
		for _, key := range []string{"", "a\x00", "\xff", string(make([]byte, 513))} {
			if err := lock(t.Context(), tx, key); !errors.Is(err, locking.ErrKey) {
				t.Errorf("%s of %.8q: %v, want ErrKey", name, key, err)
			}
		}
	}
}

// hashtext has 32 bits: of 200,000 order numbers about five pairs have one hash.
func TestHash_KeepsKeysApartThatHashtextConfuses(t *testing.T) {
	t.Parallel()
	pool, holder, other := pair(t)
	var a, b string
	must(t, pool.QueryRow(t.Context(), `
		SELECT min(key), max(key) FROM (SELECT 'order/' || n AS key FROM generate_series(1, 200000) AS n) AS keys
		GROUP BY hashtext(key) HAVING count(*) > 1 LIMIT 1`).Scan(&a, &b))
	t.Logf("%q and %q have one hashtext", a, b)
	byText := func(tx pgx.Tx, key string) (locked bool) {
		must(t, tx.QueryRow(t.Context(), `SELECT pg_try_advisory_xact_lock(hashtext($1))`, key).Scan(&locked))
		return locked
	}
	if !byText(holder, a) || byText(other, b) {
		t.Error("hashtext: want that the lock of one key is that of the other")
	}
	must(t, TryXactLock(t.Context(), holder, a))
	must(t, TryXactLock(t.Context(), other, b))
}

// The numbers are those of every process that ever locks: a change would let two in.
func TestHash_NeverChanges(t *testing.T) {
	for key, want := range map[string]int64{"": -2039914840885289964, "abc": -5010229573455851542} {
		if got := Hash(key); got != want {
			t.Errorf("Hash(%q) is %d, want %d", key, got, want)
		}
	}
}
