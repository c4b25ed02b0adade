// SPDX-License-Identifier: MIT

package pglock

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

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
func newSessions(t testing.TB) (*openedSessions, *pgxpool.Pool) {
	t.Helper()
	pool := connect(t, servertest.Env(t, "SHOP_POSTGRES_URL"), 8)
	return sessionsIn(t, pool, rand.Text()), pool
}

// sessionsIn makes a Store like that of another process: a Store knows which keys it has granted itself.
func sessionsIn(t testing.TB, pool *pgxpool.Pool, space string) *openedSessions {
	t.Helper()
	d := newSessionsOf(pool)
	store := made(driver.New(d, sessionSettings(Options{Prefix: space})))
	t.Cleanup(store.Close)
	return &openedSessions{store, d, space}
}

// terminate ends the session of a lease, as a restart of the server or a broken connection does.
func terminate(t testing.TB, s *openedSessions, pool *pgxpool.Pool, l locking.Lease) {
	t.Helper()
	x, _ := s.sessions.Of(l)
	exec(t, pool, `SELECT pg_terminate_backend($1, 10000)`, x.pid)
}

func TestSession_ItsEndIsTheLossOfTheLock(t *testing.T) {
	t.Parallel()
	store, pool := newSessions(t)
	other := sessionsIn(t, pool, store.space)
	for name, request := range map[string]func(locking.Lease) error{
		"renew":   func(l locking.Lease) error { _, err := store.Renew(t.Context(), l); return err },
		"release": func(l locking.Lease) error { return store.Release(t.Context(), l) },
	} {
		lost := locktest.Taken(t, store, "k")
		terminate(t, store, pool, lost)
		next := locktest.Taken(t, other, "k")
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
	store, pool := newSessions(t)
	err := locking.Do(t.Context(), store, locking.Options{}, []string{"k"}, func(ctx context.Context, l locking.Lease) error {
		terminate(t, store, pool, l)
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

// Another session with the lock and, by chance, the same pid is not that of the lease.
func TestSession_RenewKnowsItsSessionByMoreThanThePid(t *testing.T) {
	t.Parallel()
	store, _ := newSessions(t)
	lease := locktest.Taken(t, store, "k")
	x, _ := store.sessions.Of(lease)
	x.start = x.start.Add(time.Microsecond)
	if _, err := store.Renew(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}

// The end of another connection, on which Renew asks, is not that of the session.
func TestSession_RenewOnAConnectionThatHasEndedLosesNothing(t *testing.T) {
	t.Parallel()
	store, pool := newSessions(t)
	lease := locktest.Taken(t, store, "k")
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pid := conn.Conn().PgConn().PID()
	conn.Release()
	exec(t, connect(t, pool.Config().ConnString(), 1), `SELECT pg_terminate_backend($1, 10000)`, pid)
	if _, err := store.Renew(t.Context(), lease); err == nil || errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v, want an error that is not ErrLost", err)
	}
	if _, err := store.Renew(t.Context(), lease); err != nil {
		t.Errorf("on the next connection: %v", err)
	}
	must(t, store.Release(t.Context(), lease))
}

// A waiter that gives up keeps its connection, if the pool cancels statements, and keeps no lock.
func TestSession_GivingUpLeavesACleanConnection(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(servertest.Env(t, "SHOP_POSTGRES_URL"))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 2
	config.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: answerTimeout}
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	holder := sessionsIn(t, pool, rand.Text())
	store := sessionsIn(t, pool, holder.space)
	held := locktest.Taken(t, holder, "k")
	locktest.Released(t, store, locktest.Taken(t, store, "another")) // the second connection, before the limit of the waiters
	for range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := store.Acquire(ctx, "k")
		cancel()
		if !errors.Is(err, locking.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want ErrBusy and DeadlineExceeded", err)
		}
	}
	if n := pool.Stat().NewConnsCount(); n != 2 {
		t.Errorf("%d connections were made, want 2", n)
	}
	if err := holder.Release(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	next, err := store.Acquire(t.Context(), "k") // the server may not have noticed yet that the last waiter has left
	if err != nil {
		t.Fatal(err)
	}
	x, _ := store.sessions.Of(next)
	var locks int
	err = x.conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
		WHERE locktype = 'advisory' AND (classid::bigint << 32 | objid::bigint) = $1`, x.lock).Scan(&locks)
	if err != nil || locks != 1 {
		t.Errorf("%d sessions have or want the lock, %v, want 1", locks, err)
	}
}

// Close ends a waiter whose ctx does not end. Otherwise its connection would keep the pool from closing.
func TestSession_CloseEndsItsWaiters(t *testing.T) {
	t.Parallel()
	store, pool := newSessions(t)
	closing := sessionsIn(t, pool, store.space)
	locktest.Taken(t, store, "k")
	granted := locktest.Beside(func() (locking.Lease, error) { return closing.Acquire(context.Background(), "k") })
	locktest.Eventually(t, "the waiter is in the queue", func() bool { return inServer(t, pool, store.space+"k") == 1 })
	closing.Close()
	if _, err := (<-granted).Pair(); !errors.Is(err, locking.ErrClosed) || errors.Is(err, locking.ErrBusy) {
		t.Errorf("the waiter: %v, want ErrClosed", err)
	}
	if _, err := closing.TryAcquire(t.Context(), "k"); !errors.Is(err, locking.ErrClosed) {
		t.Errorf("a busy key after Close: %v, want ErrClosed", err)
	}
}

// A hook of the pool may discard what is prepared on a connection: it is closed, and the next is as new.
func TestSession_DiscardedStatementsCostOneRequest(t *testing.T) {
	t.Parallel()
	store, pool := newSessions(t)
	locktest.Released(t, store, locktest.Taken(t, store, "k"))
	exec(t, pool, `DEALLOCATE ALL`)
	if _, err := store.Acquire(t.Context(), "k"); err == nil || errors.Is(err, locking.ErrBusy) || errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("got %v, want an error of the server", err)
	}
	locktest.Released(t, store, locktest.Taken(t, store, "k"))
}

// A pool that prepares nothing, as one behind an old pooler in session mode, has the same lock.
func TestSession_NeedsNoPreparedStatements(t *testing.T) {
	t.Parallel()
	store, pool := newSessions(t)
	plain := sessionsIn(t, connect(t, pool.Config().ConnString()+"&default_query_exec_mode=exec", 2), store.space)
	lease := locktest.Taken(t, plain, "k")
	_, err := store.TryAcquire(t.Context(), "k")
	locktest.WantBusy(t, err)
	locktest.Released(t, plain, lease)
	lease = locktest.Taken(t, store, "k")
	_, err = plain.TryAcquire(t.Context(), "k")
	locktest.WantBusy(t, err)
	locktest.Released(t, store, lease)
}

// The waiters behind a holder of their process need no connection: they leave those of the pool for Renew.
func TestSession_WaitersBehindAHolderNeedNoConnection(t *testing.T) {
	t.Parallel()
	const waiters = 30
	pool := connect(t, servertest.Env(t, "SHOP_POSTGRES_URL"), 2) // the holder's, and that of Renew
	store := sessionsIn(t, pool, rand.Text())
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
	store, pool := newSessions(t)
	if _, err := store.TryAcquire(t.Context(), "a", "b"); !errors.Is(err, locking.ErrSeveralKeys) {
		t.Errorf("two keys: %v, want ErrSeveralKeys", err)
	}
	other := sessionsIn(t, pool, store.space)
	lease := locktest.Taken(t, store, "k")
	store.Close()
	store.Close()                                              // a second Close has no effect
	if _, err := other.Acquire(t.Context(), "k"); err != nil { // the session ends
		t.Errorf("after Close: %v", err)
	}
	if _, err := store.TryAcquire(t.Context(), "b"); !errors.Is(err, locking.ErrClosed) {
		t.Errorf("acquire after Close: %v, want ErrClosed", err)
	}
	if err := store.Release(t.Context(), lease); !errors.Is(err, locking.ErrClosed) {
		t.Errorf("release after Close: %v, want ErrClosed", err)
	}
}

// made returns a Store that New has made.
func made(s *driver.Store, err error) *driver.Store {
	if err != nil {
		panic(err)
	}
	return s
}
