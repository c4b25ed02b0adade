package pglock

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

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
	x, _ := s.held.Get(l.Owner)
	exec(t, pool, `SELECT pg_terminate_backend($1, 10000)`, x.pid)
}

func TestSession_ItsEndIsTheLossOfTheLock(t *testing.T) {
	t.Parallel()
	store, pool := newSessions(t)
	for name, request := range map[string]func(locking.Lease) error{
		"renew":   func(l locking.Lease) error { _, err := store.Renew(t.Context(), l); return err },
		"release": func(l locking.Lease) error { return store.Release(t.Context(), l) },
	} {
		lost := locktest.Taken(t, store, "k")
		terminate(t, store, pool, lost)
		next := locktest.Taken(t, store, "k")
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
	lease := locktest.Taken(t, store, "k")
	x, _ := store.held.Get(lease.Owner)
	x.start = x.start.Add(time.Microsecond)
	if _, err := store.Renew(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}

func TestSession_RefusesSeveralKeysAndRequestsAfterClose(t *testing.T) {
	t.Parallel()
	store, pool := newSessions(t)
	if _, err := store.TryAcquire(t.Context(), "a", "b"); !errors.Is(err, locking.ErrOneKey) {
		t.Errorf("two keys: %v, want ErrOneKey", err)
	}
	other := NewSessions(pool, store.space)
	t.Cleanup(other.Close)
	lease := locktest.Taken(t, store, "k")
	store.Close()
	store.Close()                 // a second Close has no effect
	locktest.Taken(t, other, "k") // the session has ended
	if _, err := store.TryAcquire(t.Context(), "b"); !errors.Is(err, ErrClosed) {
		t.Errorf("acquire after Close: %v, want ErrClosed", err)
	}
	if err := store.Release(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("release after Close: %v, want ErrLost", err)
	}
}
