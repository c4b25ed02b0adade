package pglock

import (
	"context"
	"errors"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// A standby that never answers delays each commit that must not be lost. A grant must not, a release may: without it
// the lease ends by its TTL.
func TestRelease_DoesNotWaitForAStandby(t *testing.T) {
	locktest.Slow(t, "a PostgreSQL of its own")
	t.Parallel()
	_, url := startServer(t)
	pool := connect(t, url, 8)
	migrate(t, pool)
	store, err := New(pool, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	one, several := locktest.Taken(t, store, "a"), locktest.Taken(t, store, "b", "c")
	locktest.Released(t, store, locktest.Taken(t, store, "d")) // it has a row

	exec(t, pool, `ALTER SYSTEM SET synchronous_standby_names = 'absent'`)
	exec(t, pool, `SELECT pg_reload_conf()`)
	locktest.Eventually(t, "a grant waits for the standby", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		lease, err := store.TryAcquire(ctx, "d")
		if err == nil {
			locktest.Released(t, store, lease)
		}
		return errors.Is(err, locking.ErrOutcomeUnknown)
	})
	for _, l := range []locking.Lease{one, several} {
		if err := store.Release(t.Context(), l); err != nil {
			t.Errorf("release %q: %v", l.Keys, err)
		}
	}
	if n := number(t, pool, `SELECT count(*) FROM locks WHERE key IN ('a', 'b', 'c') AND owner = ''`); n != 3 {
		t.Errorf("%d of 3 keys are free", n)
	}
	exec(t, pool, `ALTER SYSTEM RESET synchronous_standby_names`)
	exec(t, pool, `SELECT pg_reload_conf()`)
}
