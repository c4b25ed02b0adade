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
	"shop/locking/locktest"
)

// newSessions makes a SessionStore on the shared server, in a key space of its own.
func newSessions(t testing.TB, conns int) (*SessionStore, *sql.DB) {
	t.Helper()
	db := connect(t, parse(t, locktest.Env(t, env)), conns)
	store := made(NewSessions(db, rand.Text()))
	t.Cleanup(store.Close)
	return store, db
}

// terminate ends the session of a lease, as a restart of the server or a broken connection does.
func terminate(t testing.TB, s *SessionStore, db *sql.DB, l locking.Lease) {
	t.Helper()
	id := number(t, db, `SELECT IS_USED_LOCK(?)`, Name(s.space+l.Keys[0]))
	exec(t, db, fmt.Sprint("KILL ", id))
}

func TestSession_ItsEndIsTheLossOfTheLock(t *testing.T) {
	t.Parallel()
	store, db := newSessions(t, 8)
	for name, request := range map[string]func(locking.Lease) error{
		"renew":   func(l locking.Lease) error { _, err := store.Renew(t.Context(), l); return err },
		"release": func(l locking.Lease) error { return store.Release(t.Context(), l) },
	} {
		lost := locktest.Taken(t, store, "k")
		terminate(t, store, db, lost)
		next, err := store.Acquire(t.Context(), "k")
		must(t, err)
		if err := request(lost); !errors.Is(err, locking.ErrLost) {
			t.Errorf("%s: got %v, want ErrLost", name, err)
		}
		if _, err := store.Renew(t.Context(), next); err != nil {
			t.Errorf("the next holder renews: %v", err)
		}
		if err := store.Release(t.Context(), next); err != nil {
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
	x, _ := store.sessions.Get(lease)
	x.mark = rand.Text()
	if _, err := store.Renew(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}

// Close ends a waiter whose ctx does not end.
func TestSession_CloseEndsItsWaiters(t *testing.T) {
	t.Parallel()
	store, db := newSessions(t, 8)
	closing := made(NewSessions(db, store.space))
	t.Cleanup(closing.Close)
	locktest.Taken(t, store, "k")
	granted := locktest.Beside(func() (locking.Lease, error) { return closing.Acquire(context.Background(), "k") })
	locktest.Eventually(t, "the waiter is in the queue", func() bool { return inServer(t, db, store.space+"k") == 1 })
	closing.Close()
	if _, err := (<-granted).Pair(); !errors.Is(err, ErrClosed) || errors.Is(err, locking.ErrBusy) {
		t.Errorf("the waiter: %v, want ErrClosed", err)
	}
	if _, err := closing.TryAcquire(t.Context(), "k"); !errors.Is(err, ErrClosed) {
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
	if _, err := (<-granted).Pair(); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

// The waiters of a process share its sessions: they leave connections of the pool for Renew.
func TestSession_ManyWaitersNeedOneConnection(t *testing.T) {
	t.Parallel()
	const waiters = 30
	store, db := newSessions(t, 3) // the holder's, a waiter's, that of Renew
	held := locktest.Taken(t, store, "k")
	served := make(chan error, waiters)
	for range waiters {
		go func() {
			lease, err := store.Acquire(t.Context(), "k")
			served <- errors.Join(err, store.Release(context.Background(), lease))
		}()
	}
	locktest.Eventually(t, "one of them waits in the server", func() bool { return inServer(t, db, store.space+"k") == 1 })
	if _, err := store.Renew(t.Context(), held); err != nil {
		t.Errorf("the holder renews: %v", err)
	}
	must(t, store.Release(t.Context(), held))
	for range waiters {
		must(t, <-served)
	}
}

// A holder that releases passes its session to a waiter, unless the session has ended.
func TestSession_IsPassedOnWithItsLock(t *testing.T) {
	t.Parallel()
	for _, ended := range []bool{false, true} {
		store, db := newSessions(t, 8)
		store.sessions.Handoff.Turn = time.Minute
		lease := locktest.Taken(t, store, "k")
		session, _ := store.sessions.Get(lease)
		granted := locktest.Beside(func() (locking.Lease, error) { return store.Acquire(t.Context(), "k") })
		locktest.Eventually(t, "a waiter is here", func() bool { return store.sessions.Handoff.Wanted("k") })
		if ended {
			terminate(t, store, db, lease)
		}
		err := store.Release(t.Context(), lease)
		if lost := errors.Is(err, locking.ErrLost); lost != ended || !lost && err != nil {
			t.Errorf("session has ended: %t; release: %v", ended, err)
		}
		next, err := (<-granted).Pair()
		must(t, err)
		if now, _ := store.sessions.Get(next); (now == session) == ended {
			t.Errorf("session has ended: %t; the waiter has it: %t", ended, now == session)
		}
		if _, err := store.Renew(t.Context(), next); err != nil {
			t.Errorf("the waiter renews: %v", err)
		}
		if _, err := store.Renew(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
			t.Errorf("the released lease is renewed: %v", err)
		}
		must(t, store.Release(t.Context(), next))
	}
}

func TestSession_RefusesSeveralKeysAndRequestsAfterClose(t *testing.T) {
	t.Parallel()
	store, db := newSessions(t, 8)
	if _, err := store.TryAcquire(t.Context(), "a", "b"); !errors.Is(err, locking.ErrOneKey) {
		t.Errorf("two keys: %v, want ErrOneKey", err)
	}
	other := made(NewSessions(db, store.space))
	t.Cleanup(other.Close)
	lease := locktest.Taken(t, store, "k")
	store.Close()
	store.Close()                             // a second Close has no effect
	_, err := other.Acquire(t.Context(), "k") // the session has ended
	must(t, err)
	if _, err := store.TryAcquire(t.Context(), "b"); !errors.Is(err, ErrClosed) {
		t.Errorf("acquire after Close: %v, want ErrClosed", err)
	}
	if err := store.Release(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("release after Close: %v, want ErrLost", err)
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
	other, _ := newSessions(t, 1)
	other.space = store.space
	locktest.Taken(t, other, "k")
	_, err := store.TryAcquire(t.Context(), "k")
	locktest.WantBusy(t, err)
	clean("a refusal")
}

// NULL is neither granted nor busy: a caller that takes it for 0 waits for a lock that is free, and one
// that looks only for an error has no lock.
func TestSession_NullIsAnError(t *testing.T) {
	t.Parallel()
	store, db := newSessions(t, 4)
	on := func(lock string) *session {
		conn, err := db.Conn(t.Context())
		must(t, err)
		x := &session{store: store, conn: conn, lock: lock, mark: rand.Text()}
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
	answer := locktest.Beside(func() (bool, error) { return waiter.wait(t.Context()) })
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

// made returns a SessionStore that New has made.
func made(s *SessionStore, err error) *SessionStore {
	if err != nil {
		panic(err)
	}
	return s
}
