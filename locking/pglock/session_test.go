package pglock

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/locktest"
)

// newSessions makes a SessionStore on the shared server, in a key space of its own.
func newSessions(t testing.TB) (*SessionStore, *pgxpool.Pool) {
	t.Helper()
	pool := connect(t, locktest.Env(t, "SHOP_POSTGRES_URL"), 8)
	store := NewSessions(pool, rand.Text())
	t.Cleanup(store.Close)
	return store, pool
}

// terminate ends the session of a lease, as a restart of the server or a broken connection does.
func terminate(t testing.TB, s *SessionStore, pool *pgxpool.Pool, l locking.Lease) {
	t.Helper()
	s.mu.Lock()
	pid := s.held[l.Owner].pid
	s.mu.Unlock()
	exec(t, pool, `SELECT pg_terminate_backend($1, 10000)`, pid)
}

func TestSession_ItsEndIsTheLossOfTheLock(t *testing.T) {
	t.Parallel()
	store, pool := newSessions(t)
	for name, request := range map[string]func(locking.Lease) error{
		"renew":   func(l locking.Lease) error { _, err := store.Renew(t.Context(), l); return err },
		"release": func(l locking.Lease) error { return store.Release(t.Context(), l) },
	} {
		lost := taken(t, store, "k")
		terminate(t, store, pool, lost)
		next := taken(t, store, "k")
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
	lease := taken(t, store, "k")
	x := store.held[lease.Owner]
	x.start = x.start.Add(time.Microsecond)
	if _, err := store.Renew(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}

func TestSession_RefusesSeveralKeysAndRequestsAfterClose(t *testing.T) {
	t.Parallel()
	store, pool := newSessions(t)
	if _, err := store.TryAcquire(t.Context(), "a", "b"); !errors.Is(err, ErrOneKey) {
		t.Errorf("two keys: %v, want ErrOneKey", err)
	}
	other := NewSessions(pool, store.space)
	t.Cleanup(other.Close)
	lease := taken(t, store, "k")
	store.Close()
	store.Close()        // a second Close has no effect
	taken(t, other, "k") // the session has ended
	if _, err := store.TryAcquire(t.Context(), "b"); !errors.Is(err, ErrClosed) {
		t.Errorf("acquire after Close: %v, want ErrClosed", err)
	}
	if err := store.Release(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("release after Close: %v, want ErrLost", err)
	}
}

// pooler runs each statement outside of a transaction in another session than the one
// before, as a pooler in transaction mode may.
type pooler struct {
	sessions []*pgx.Conn
	n        int
}

func (p *pooler) yes(t *testing.T, sql string, args ...any) (yes bool) {
	t.Helper()
	p.n++
	if err := p.sessions[p.n%len(p.sessions)].QueryRow(t.Context(), sql, args...).Scan(&yes); err != nil {
		t.Fatal(err)
	}
	return yes
}

func TestSession_ThroughATransactionPoolerLeaksItsLock(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	p := &pooler{}
	for range 2 {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		defer conn.Exec(context.Background(), `SELECT pg_advisory_unlock_all()`)
		p.sessions = append(p.sessions, conn.Conn())
	}
	key := Hash("pooled" + rand.Text())
	if !p.yes(t, `SELECT pg_try_advisory_lock($1)`, key) {
		t.Fatal("the lock is not free")
	}
	if p.yes(t, `SELECT pg_advisory_unlock($1)`, key) {
		t.Error("another session than the holder's has released the lock")
	}
	if !p.yes(t, `SELECT pg_try_advisory_lock($1)`, key) {
		t.Error("want a second holder, whose statement runs in the session of the first")
	}
	if p.yes(t, `SELECT pg_try_advisory_lock($1)`, key) {
		t.Error("the lock is free: nothing leaked")
	}
	// A lock until the end of the transaction stays in one session, and ends with it.
	for _, session := range p.sessions {
		tx, err := session.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := TryXactLock(t.Context(), tx, "pooled"+t.Name()); err != nil {
			t.Error(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
