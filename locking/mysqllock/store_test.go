// SPDX-License-Identifier: MIT

package mysqllock

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// locked locks the one row of the locks in a transaction, and starts a request that waits for the row.
func locked[R any](t *testing.T, db *sql.DB, request func() (R, error)) (tx *sql.Tx, answer <-chan locktest.Outcome[R]) {
	t.Helper()
	tx = begin(t, db, sql.LevelDefault)
	number(t, tx, `SELECT fence FROM locks FOR UPDATE`)
	answer = locktest.Beside(request)
	locktest.Eventually(t, "the request waits for the row", func() bool { return waiting(t, db) != 0 })
	return tx, answer
}

// waiting returns the session of a request for a lock in this database, or 0.
func waiting(t *testing.T, db *sql.DB) int64 {
	t.Helper()
	return number(t, db, `
		SELECT COALESCE(MAX(ID), 0) FROM information_schema.PROCESSLIST
		WHERE DB = DATABASE() AND ID <> CONNECTION_ID() AND COMMAND = 'Query'`)
}

// expiredBehindARow renews a lease that expires while the request waits for its row.
func expiredBehindARow(t *testing.T, edits ...string) error {
	t.Helper()
	migration, _, _ := edited(t, edits...)
	db := connect(t, newDatabase(t, servertest.Env(t, env), migration), 16)
	o := settings(time.Second)
	o.Limit = time.Minute
	store := made(driver.New(newTable(db, time.Second), o))
	t.Cleanup(store.Close)
	lease := locktest.Taken(t, store, "k")
	tx, answer := locked(t, db, func() (locking.Lease, error) { return store.Renew(t.Context(), lease) })
	locktest.Eventually(t, "the lease expires", func() bool {
		return number(t, db, `SELECT COUNT(*) FROM locks WHERE expires < UTC_TIMESTAMP(6)`) > 0
	})
	must(t, tx.Rollback())
	_, err := (<-answer).Pair()
	return err
}

func TestRenew_ReadsTheClockAfterTheWaitForTheRow(t *testing.T) {
	t.Parallel()
	if err := expiredBehindARow(t); !errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v for an expired lease, want ErrLost", err)
	}
	err := expiredBehindARow(t, "SELECT COUNT(*) INTO held FROM locks WHERE name = k FOR UPDATE;", "")
	if err != nil {
		t.Errorf("in one statement: got %v, want none, or the test shows nothing", err)
	}
}

// A procedure that is killed does not roll back: its connection has the row locks until it is closed. Nor
// does the server's answer tell whether it had committed.
func TestTryAcquire_IsRetriedAfterKillQuery(t *testing.T) {
	t.Parallel()
	store, db := newStore(t, time.Minute)
	must(t, store.Release(t.Context(), locktest.Taken(t, store, "k")))
	tx, answer := locked(t, db, func() (locking.Lease, error) { return store.TryAcquire(t.Context(), "a", "k") })
	exec(t, db, fmt.Sprint("KILL QUERY ", waiting(t, db))) // it has locked the row of a, and waits for that of k
	must(t, tx.Rollback())
	lease, err := (<-answer).Pair()
	if err != nil {
		t.Fatal(err)
	}
	must(t, store.Release(t.Context(), lease))
}

// Requests add the same row, and roll back because another key is busy.
func TestTryAcquire_ConcurrentFirstRequestsAreBusyAndNothingElse(t *testing.T) {
	t.Parallel()
	store, _ := newStore(t, time.Minute)
	locktest.Taken(t, store, "z")
	for round := range 20 {
		answers := make(chan error, 8)
		for range cap(answers) {
			go func() {
				_, err := store.TryAcquire(t.Context(), fmt.Sprint("a", round), "z")
				answers <- err
			}()
		}
		for range cap(answers) {
			locktest.WantBusy(t, <-answers)
		}
	}
}

func TestTryAcquire_FenceGrowsOverTheDeletionOfItsRow(t *testing.T) {
	t.Parallel()
	store, db := newStore(t, time.Minute)
	first := locktest.Taken(t, store, "k")
	exec(t, db, `DELETE FROM locks`)
	if _, err := store.Renew(t.Context(), first); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew: got %v, want ErrLost", err)
	}
	if second := locktest.Taken(t, storeOn(t, db, time.Minute), "k"); second.Fence <= first.Fence {
		t.Errorf("fence %d after %d", second.Fence, first.Fence)
	}
}

// The clock was set back: the fences are those of the rows.
func TestTryAcquire_FenceGrowsWhenTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	store, db := newStore(t, time.Minute)
	must(t, store.Release(t.Context(), locktest.Taken(t, store, "k")))
	exec(t, db, `UPDATE locks SET fence = ?`, int64(1)<<61)
	for n, keys := range [][]string{{"a", "k"}, {"k"}} {
		lease := locktest.Taken(t, store, keys...)
		if want := locking.Fence(1<<61 + 1 + n); lease.Fence != want {
			t.Errorf("%q: fence %d, want %d", keys, lease.Fence, want)
		}
		must(t, store.Release(t.Context(), lease))
	}
}

// The answer of a procedure is lost, after that of an UPDATE which found no row: the grant is found by its owner.
func TestTryAcquire_TheAnswerOfAProcedureIsLost(t *testing.T) {
	t.Parallel()
	server := newDatabase(t, servertest.Env(t, env), "")
	p := servertest.NewFaults(t, server.Addr, func(request []byte) bool { return bytes.Contains(request, []byte("CALL locks_acquire")) })
	through := server.Clone()
	through.Addr = p.Addr
	store := storeOn(t, connect(t, through, 3), 10*time.Second)
	p.Lose(1)
	lease, err := store.TryAcquire(t.Context(), "k")
	must(t, err)
	if p.Lost() == 0 {
		t.Error("no answer was lost")
	}
	locktest.Released(t, store, lease)
}

// A request that is repeated, or that a network delivers twice, takes its keys once; when its lease
// is over, the duplicate does not revive it.
func TestTryAcquire_DuplicateRequestsMakeOneGrant(t *testing.T) {
	t.Parallel()
	locktest.Subtests(t, map[string][]string{"one key": {"a"}, "two keys": {"a", "b"}}, duplicateRequestsMakeOneGrant)
}

func duplicateRequestsMakeOneGrant(t *testing.T, keys []string) {
	store, _ := newStore(t, time.Minute)
	lease := locktest.Taken(t, store, keys...)
	again := func() locking.Fence {
		grant, err := store.Take(t.Context(), lease.Keys, lease.Owner, false)
		must(t, err)
		return grant.Fence
	}
	if fence := again(); fence != lease.Fence {
		t.Errorf("fence %d for the second request, %d for the first", fence, lease.Fence)
	}
	must(t, store.Release(t.Context(), lease))
	if fence := again(); fence <= lease.Fence {
		t.Errorf("fence %d after the release of %d", fence, lease.Fence)
	}
	if _, err := store.Renew(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew: got %v, want ErrLost", err)
	}
}

// What a caller passes as a lease is data to the server.
func TestRenew_QuotesTheOwner(t *testing.T) {
	t.Parallel()
	store, db := newStore(t, time.Minute)
	lease := locktest.Taken(t, store, "it's", `a\b`, "'); DROP TABLE locks; --")
	forged := lease
	forged.Owner = `'); DROP TABLE locks; -- \`
	if _, err := store.Renew(t.Context(), forged); !errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	if n := number(t, db, `SELECT COUNT(*) FROM locks WHERE owner <> ''`); n != 3 {
		t.Errorf("%d keys are held, want 3", n)
	}
	must(t, store.Release(t.Context(), lease))
}

// Stores whose sessions have other settings than the server's defaults exclude each other.
func TestStore_DoesNotDependOnTheSettingsOfItsSessions(t *testing.T) {
	t.Parallel()
	server := newDatabase(t, servertest.Env(t, env), "")
	var stores []*opened
	for dsn, set := range map[string]string{
		"?time_zone=%27%2B09%3A00%27&charset=latin1":                 "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
		"?time_zone=%27-05%3A00%27&clientFoundRows=true":             "SET autocommit = 0",
		"?sql_mode=%27ANSI%27&interpolateParams=true&parseTime=true": "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
	} {
		cfg := parse(t, servertest.Env(t, env)+server.DBName+dsn)
		db := connect(t, cfg, 1) // the connection that is set
		exec(t, db, set)
		stores = append(stores, storeOn(t, db, time.Minute))
	}
	last := locking.Fence(0)
	for round := range 12 {
		mine, other := stores[round%3], stores[(round+1)%3]
		lease := locktest.Taken(t, mine, [][]string{{"é"}, {"é", "🔒"}}[round/3%2]...)
		if lease.Fence <= last {
			t.Errorf("fence %d after %d", lease.Fence, last)
		}
		last = lease.Fence
		for _, key := range lease.Keys {
			_, err := other.TryAcquire(t.Context(), key)
			locktest.WantBusy(t, err)
		}
		_, err := mine.Renew(t.Context(), lease)
		must(t, err)
		must(t, mine.Release(t.Context(), lease))
	}
}

// A missing table is not an outcome that is unknown, and is reported at once.
func TestTryAcquire_WithoutTheMigrationsFailsAtOnce(t *testing.T) {
	t.Parallel()
	store := storeOn(t, connect(t, parse(t, servertest.Env(t, env)+"mysql"), 1), time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := store.TryAcquire(ctx, "k")
	if code(err) != 1146 || errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, locking.ErrBusy) {
		t.Errorf("got %v, want the server's 1146", err)
	}
}

func TestNew_WithoutADBIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := New(nil, time.Minute, Options{}); !errors.Is(err, locking.ErrNoClient) {
		t.Errorf("New: got %v, want ErrNoClient", err)
	}
	if _, err := NewSessions(nil, Options{}); !errors.Is(err, locking.ErrNoClient) {
		t.Errorf("NewSessions: got %v, want ErrNoClient", err)
	}
	if err := Guard(t.Context(), nil, "k", 1); !errors.Is(err, locking.ErrUnfenced) {
		t.Errorf("Guard: got %v, want ErrUnfenced", err)
	}
}

func TestNew_StoresWithAnotherPrefixDoNotExcludeEachOther(t *testing.T) {
	t.Parallel()
	_, db := newStore(t, time.Minute)
	locktest.WantApart(t, func(prefix string) locking.Store {
		s, err := New(db, time.Minute, Options{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	})
}
