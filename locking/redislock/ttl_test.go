// SPDX-License-Identifier: MIT

package redislock

import (
	"context"
	"errors"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/redislock/redistest"
)

// T20: a TTL is sent in seconds where milliseconds were meant.
func TestTTL_IsSetToTheMillisecond(t *testing.T) {
	const ttl = 15_500 * time.Millisecond
	store := newStore(t, ttl)
	exact := func(what string, asked time.Time) {
		t.Helper()
		left := store.client.PTTL(t.Context(), store.Scope("k")+"lock:k").Val()
		if left > ttl || left < ttl-time.Since(asked)-time.Millisecond {
			t.Errorf("%s: %v left of a TTL of %v", what, left, ttl)
		}
	}
	asked := time.Now()
	lease := locktest.Taken(t, store, "k")
	exact("acquire", asked)
	asked = time.Now()
	if _, err := store.Renew(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	exact("renew", asked)
	for _, bad := range []time.Duration{ttl + time.Microsecond, TTLMin - time.Millisecond, 0, -time.Second} {
		if _, err := New(store.client, bad, Options{}); err == nil {
			t.Errorf("a TTL of %v was accepted", bad)
		}
	}
}

// Renew is all or none: when one key of a lease is lost, no key is prolonged.
func TestRenew_RefusedChangesNoTTL(t *testing.T) {
	const ttl = 20 * time.Second
	store := newStore(t, ttl)
	longer := storeAt(t, redistest.URL(t), 2*ttl, store.Options)
	lease := locktest.Taken(t, store, "a", "b")
	store.client.Del(t.Context(), store.Scope("b")+"lock:b") // by an operator
	locktest.Taken(t, beside(t, store), "b")
	if _, err := longer.Renew(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	for _, k := range []string{"a", "b"} {
		if left := store.client.PTTL(t.Context(), store.Scope(k)+"lock:"+k).Val(); left <= 0 || left > ttl {
			t.Errorf("%q expires in %v, want at most its TTL of %v", k, left, ttl)
		}
	}
}

// T24: a watchdog renews the lease of a stuck holder for ever.
func TestDo_StuckHolderLosesItsKeysAfterMaxHold(t *testing.T) {
	locktest.Slow(t, "it waits for MaxHold")
	t.Parallel()
	const ttl = 2 * time.Second
	store := newStore(t, ttl)
	other := beside(t, store)
	err := locking.Do(t.Context(), store, locking.Options{MaxHold: ttl}, []string{"k"}, func(ctx context.Context, l locking.Lease) error {
		<-ctx.Done()
		locktest.Eventually(t, "the stuck holder's key is free", func() bool { // fn has not returned
			_, err := other.TryAcquire(t.Context(), "k")
			return err == nil
		})
		return context.Cause(ctx)
	})
	if !errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}
