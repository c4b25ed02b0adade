// SPDX-License-Identifier: MIT

package mysqllock

import (
	"context"
	"crypto/rand"
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

// openedSessions is a Store of sessions, with its driver.
type openedSessions struct {
	*driver.Store
	sessions *driver.Sessions[*session]
	space    string
}

// newSessions makes a Store on the shared server, in a key space of its own.
func newSessions(t testing.TB, conns int) (*openedSessions, *sql.DB) {
	t.Helper()
	db := connect(t, parse(t, servertest.Env(t, env)), conns)
	return sessionsIn(t, db, rand.Text()), db
}

// sessionsIn makes a Store like that of another process: a Store knows which keys it has granted itself.
func sessionsIn(t testing.TB, db *sql.DB, space string) *openedSessions {
	t.Helper()
	d := newSessionsOf(db)
	store := made(driver.New(d, sessionSettings(Options{Prefix: space})))
	t.Cleanup(store.Close)
	return &openedSessions{store, d, space}
}

// terminate ends the session of a lease, as a restart of the server or a broken connection does.
func terminate(t testing.TB, s *openedSessions, db *sql.DB, l locking.Lease) {
	t.Helper()
	id := number(t, db, `SELECT IS_USED_LOCK(?)`, Name(s.space+l.Keys[0]))
	exec(t, db, fmt.Sprint("KILL ", id))
}

func TestSession_ItsEndIsTheLossOfTheLock(t *testing.T) {
	t.Parallel()
	store, db := newSessions(t, 8)
	other := sessionsIn(t, db, store.space)
	for name, request := range map[string]func(locking.Lease) error{
		"renew":   func(l locking.Lease) error { _, err := store.Renew(t.Context(), l); return err },
		"release": func(l locking.Lease) error { return store.Release(t.Context(), l) },
	} {
		lost := locktest.Taken(t, store, "k")
		terminate(t, store, db, lost)
		next, err := other.Acquire(t.Context(), "k") // the server may still be ending the session
		must(t, err)
		if err := request(lost); !errors.Is(err, locking.ErrLost) {
			t.Errorf("%s: got %v, want ErrLost", name, err)
		}
		if _, err := other.Renew(t.Context(), next); err != nil {
			t.Errorf("the next holder renews: %v", err)
		}
		if err := other.Release(t.Context(), next); err != nil {
			t.Errorf("the next holder releases: %v", err)
		}
	}
}

// The holder hears of the loss within about a second, by the next renewal of Do.
func TestSession_ItsEndCancelsTheWork(t *testing.T) {
	t.Parallel()
	store, db := newSessions(t, 8)
	err := locking.Do(t.Context(), store, locking.Options{}, []string{"k"}, func(ctx context.Context, l locking.Lease) error {
		terminate(t, store, db, l)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Second):
			return errors.New("the work was not cancelled")
		}
	})
	if !errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}

// After a restart of the server another session may have the number of the lease's session, and its lock.
func TestSession_RenewKnowsItsSessionByMoreThanItsNumber(t *testing.T) {
	t.Parallel()
	store, _ := newSessions(t, 8)
	lease := locktest.Taken(t, store, "k")
	x, _ := store.sessions.Of(lease)
	x.mark = rand.Text()
	if _, err := store.Renew(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}

// Close ends a waiter whose ctx does not end.
func TestSession_CloseEndsItsWaiters(t *testing.T) {
	t.Parallel()
	store, db := newSessions(t, 8)
	closing := sessionsIn(t, db, store.space)
	locktest.Taken(t, store, "k")
	granted := locktest.Beside(func() (locking.Lease, error) { return closing.Acquire(context.Background(), "k") })
	locktest.Eventually(t, "the waiter is in the queue", func() bool { return inServer(t, db, store.space+"k") == 1 })
	closing.Close()
	if _, err := (<-granted).Pair(); !errors.Is(err, locking.ErrClosed) || errors.Is(err, locking.ErrBusy) {
		t.Errorf("the waiter: %v, want ErrClosed", err)
	}
	if _, err := closing.TryAcquire(t.Context(), "k"); !errors.Is(err, locking.ErrClosed) {
		t.Errorf("a busy key after Close: %v, want ErrClosed", err)
	}
}

// Close ends a waiter that has no connection too.
func TestSession_CloseEndsAWaiterForAConnection(t *testing.T) {
	t.Parallel()
	store, db := newSessions(t, 1)
	locktest.Taken(t, store, "k")
	granted := locktest.Beside(func() (locking.Lease, error) { return store.Acquire(context.Background(), "another") })
	locktest.Eventually(t, "it waits", func() bool { return db.Stats().WaitCount == 1 })
	store.Close()
	if _, err := (<-granted).Pair(); !errors.Is(err, locking.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

// The waiters behind a holder of their process need no connection: they leave those of the pool for Renew.
func TestSession_WaitersBehindAHolderNeedNoConnection(t *testing.T) {
	t.Parallel()
	const waiters = 30
	store, _ := newSessions(t, 2) // the holder's, and that of Renew
	held := locktest.Taken(t, store, "k")
	served := make(chan error, waiters)
	for range waiters {
		go func() {
			lease, err := store.Acquire(t.Context(), "k")
			served <- errors.Join(err, store.Release(context.Background(), lease))
		}()
	}
	if _, err := store.Renew(t.Context(), held); err != nil {
		t.Errorf("the holder renews: %v", err)
	}
	must(t, store.Release(t.Context(), held))
	for range waiters {
		must(t, <-served)
	}
}

func TestSession_RefusesSeveralKeysAndRequestsAfterClose(t *testing.T) {
	t.Parallel()
	store, db := newSessions(t, 8)
	if _, err := store.TryAcquire(t.Context(), "a", "b"); !errors.Is(err, locking.ErrSeveralKeys) {
		t.Errorf("two keys: %v, want ErrSeveralKeys", err)
	}
	other := sessionsIn(t, db, store.space)
	lease := locktest.Taken(t, store, "k")
	store.Close()
	store.Close()                             // a second Close has no effect
	_, err := other.Acquire(t.Context(), "k") // the session has ended
	must(t, err)
	if _, err := store.TryAcquire(t.Context(), "b"); !errors.Is(err, locking.ErrClosed) {
		t.Errorf("acquire after Close: %v, want ErrClosed", err)
	}
	if err := store.Release(t.Context(), lease); !errors.Is(err, locking.ErrClosed) {
		t.Errorf("release after Close: %v, want ErrClosed", err)
	}
}

// A connection goes back to the pool without a lock, the mark included.
func TestSession_LeavesNothingOnItsConnection(t *testing.T) {
	t.Parallel()
	store, db := newSessions(t, 1)
	clean := func(after string) {
		t.Helper()
		if n := number(t, db, `SELECT RELEASE_ALL_LOCKS()`); n != 0 {
			t.Errorf("after %s the session has %d locks", after, n)
		}
	}
	must(t, store.Release(t.Context(), locktest.Taken(t, store, "k")))
	clean("a release")
	other := sessionsIn(t, connect(t, parse(t, servertest.Env(t, env)), 1), store.space)
	locktest.Taken(t, other, "k")
	_, err := store.TryAcquire(t.Context(), "k")
	locktest.WantBusy(t, err)
	clean("a refusal")
}

// NULL is neither granted nor busy: a caller that takes it for 0 waits for a lock that is free, and one
// that looks only for an error has no lock.
func TestSession_NullIsAnError(t *testing.T) {
	t.Parallel()
	_, db := newSessions(t, 4)
	on := func(lock string) *session {
		conn, err := db.Conn(t.Context())
		must(t, err)
		x := &session{db: db, conn: conn, lock: lock, mark: rand.Text()}
		t.Cleanup(func() { x.end(false) })
		return x
	}
	want := func(what string, free bool, err error) {
		t.Helper()
		if free || err == nil || errors.Is(err, locking.ErrBusy) {
			t.Errorf("%s: got %t and %v, want an error that is not ErrBusy", what, free, err)
		}
		if mariaDB(t, db) && code(err) == 0 && !errors.Is(err, ErrNull) {
			t.Errorf("%s: got %v, want ErrNull", what, err)
		}
	}
	free, err := on("").get(t.Context(), 0)
	want("no name", free, err)

	holder := on(rand.Text())
	if free, err := holder.get(t.Context(), 0); err != nil || !free {
		t.Fatal(free, err)
	}
	waiter := on(holder.lock)
	answer := locktest.Beside(func() (bool, error) { return waiter.get(t.Context(), time.Hour) })
	of := `SELECT COALESCE(MAX(ID), 0) FROM information_schema.PROCESSLIST WHERE STATE = 'User lock' AND INFO LIKE ?`
	locktest.Eventually(t, "the waiter waits", func() bool { return number(t, db, of, "%"+holder.lock+"%") != 0 })
	exec(t, db, fmt.Sprint("KILL QUERY ", number(t, db, of, "%"+holder.lock+"%")))
	free, err = (<-answer).Pair()
	want("KILL QUERY", free, err)
}

// The trap of GET_LOCK in a transaction: its end releases nothing, and the pool hands the connection, with
// the lock, to the next caller.
func TestGetLock_OutlivesItsTransaction(t *testing.T) {
	t.Parallel()
	_, one := newSessions(t, 1)
	_, other := newSessions(t, 1)
	name := rand.Text()
	for end, finish := range map[string]func(*sql.Tx) error{"commit": (*sql.Tx).Commit, "rollback": (*sql.Tx).Rollback} {
		tx := begin(t, one, sql.LevelDefault)
		number(t, tx, `SELECT GET_LOCK(?, 0)`, name)
		must(t, finish(tx))
		if number(t, other, `SELECT GET_LOCK(?, 0)`, name) != 0 {
			t.Errorf("the %s has released the lock", end)
		}
		if number(t, one, `SELECT GET_LOCK(?, 0)`, name) != 1 {
			t.Errorf("the next caller of the pool does not have the lock")
		}
		if n := number(t, one, `SELECT RELEASE_ALL_LOCKS()`); n != 2 {
			t.Errorf("released %d times, want 2: each GET_LOCK counts", n)
		}
	}
}

// made returns a Store that New has made.
func made(s *driver.Store, err error) *driver.Store {
	if err != nil {
		panic(err)
	}
	return s
}
