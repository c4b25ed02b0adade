// SPDX-License-Identifier: MIT

package redislock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/locktest"
	"shop/locking/redislock/redistest"
	"shop/locking/servertest"
)

// The known traps of lease locks, T16 to T25, one test each. (T17, failover, is in
// sentinel_test.go; T20 and T24, durations, in ttl_test.go; T25, restarts, in
// restart_test.go.)

// behindProxy makes a Store behind a proxy that can disturb it, with its scripts loaded
// at the server, and a second Store in the same key space that connects directly.
func behindProxy(t *testing.T, ttl time.Duration) (*opened, *servertest.Faults, *opened) {
	t.Helper()
	p := redistest.Proxy(t, redistest.Host(t, redistest.URL(t)))
	o := Options{Prefix: redistest.Prefix(t, redistest.URL(t))}
	store := storeAt(t, "redis://"+p.Addr, ttl, o)
	lease := locktest.Taken(t, store, "warm-up")
	if err := store.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	return store, p, storeAt(t, redistest.URL(t), ttl, o)
}

// T16: the answer to a keep-alive may arrive late, and T21: validity may be counted from
// the answer. Until must count from the sending of the request.
func TestRenew_LateAnswerDoesNotProlongTrust(t *testing.T) {
	const ttl, late = 3 * time.Second, 100 * time.Millisecond
	store, p, _ := behindProxy(t, ttl)
	p.Delay(late)
	lease := locktest.Taken(t, store, "k")
	if left := time.Until(lease.Until); left > ttl-driver.DefaultMargin(ttl)-late {
		t.Errorf("acquire: trusted for %v after an answer that took %v", left, late)
	}
	renewed, err := store.Renew(t.Context(), lease)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(renewed.Until); left > ttl-driver.DefaultMargin(ttl)-late {
		t.Errorf("renew: trusted for %v after an answer that took %v", left, late)
	}
}

// T18: a client that retries SET NX by itself finds the key held by its own lock.
// The Store retries the request, recognizes its own lock, and keeps the fence.
func TestTryAcquire_LostAnswerIsNotBusy(t *testing.T) {
	for name, reset := range map[string]bool{"silence": false, "connection reset": true} {
		t.Run(name, func(t *testing.T) {
			store, p, other := behindProxy(t, 6*time.Second)
			p.Reset(reset)
			before := fenceOf(t, store, "k")
			p.Lose(1)
			asked := time.Now()
			lease := locktest.Taken(t, store, "k")
			if p.Lost() != 1 {
				t.Fatalf("%d answers were lost, want 1", p.Lost())
			}
			if after := fenceOf(t, store, "k"); before >= lease.Fence || lease.Fence != after {
				t.Errorf("fence %d; the counter was at %d and is at %d", lease.Fence, before, after)
			}
			if !reset && lease.Until.Sub(asked) < store.ttl-driver.DefaultMargin(store.ttl)+store.Limit() {
				t.Errorf("Until counts from the first request, but the second one set the TTL")
			}
			if left := store.client.PTTL(t.Context(), store.Scope("k")+"lock:k").Val(); left < time.Until(lease.Until) {
				t.Errorf("Until is %v from now, but the lock expires in %v", time.Until(lease.Until), left)
			}
			locktest.WantHeld(t, other, "k")
			if err := store.Release(t.Context(), lease); err != nil {
				t.Error(err)
			}
			locktest.Taken(t, other, "k")
		})
	}
}

// fenceOf reads the fence counter of key.
func fenceOf(t *testing.T, s *opened, key string) locking.Fence {
	t.Helper()
	n, err := s.client.Get(t.Context(), s.Scope(key)+"fence").Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return locking.Fence(n)
}

// T19: by default go-redis ignores ctx while it reads. A Store returns at its deadline.
func TestTryAcquire_ReturnsAtTheDeadlineWhileRedisIsSilent(t *testing.T) {
	store, p, other := behindProxy(t, 6*time.Second)
	p.Lose(1 << 30)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	asked := time.Now()
	_, err := store.TryAcquire(ctx, "k")
	if took := time.Since(asked); took > time.Second {
		t.Errorf("returned after %v", took)
	}
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, locking.ErrBusy) {
		t.Errorf("got %v, want DeadlineExceeded and ErrOutcomeUnknown", err)
	}
	p.Lose(0)
	locktest.Eventually(t, "the key that the request took is free", func() bool { // long before the TTL
		_, err := other.TryAcquire(t.Context(), "k")
		return err == nil
	})
	if took := time.Since(asked); took > store.ttl/2 {
		t.Errorf("free after %v", took)
	}
}

// T22: a release by plain DEL frees the next holder's lock.
func TestRelease_DoesNotFreeTheNextHoldersLock(t *testing.T) {
	store := newStore(t, time.Minute)
	first := locktest.Taken(t, store, "k")
	store.client.Del(t.Context(), store.Scope("k")+"lock:k") // an operator, or eviction
	other := beside(t, store)
	second := locktest.Taken(t, other, "k")
	if err := store.Release(t.Context(), first); !errors.Is(err, locking.ErrLost) {
		t.Errorf("release by the first holder: got %v, want ErrLost", err)
	}
	locktest.WantHeld(t, store, "k")
	if err := other.Release(t.Context(), second); err != nil {
		t.Error(err)
	}
}

// T23: a renewal that takes a lost lock again hides that there was another holder.
func TestRenew_NeverTakesALostKeyAgain(t *testing.T) {
	store := newStore(t, time.Minute)
	lease := locktest.Taken(t, store, "a", "b")
	store.client.Del(t.Context(), store.Scope("a")+"lock:a")
	if _, err := store.Renew(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	if n := store.client.Exists(t.Context(), store.Scope("a")+"lock:a").Val(); n != 0 {
		t.Error("the lost key was taken again")
	}
	if err := store.Release(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("release: got %v, want ErrLost", err)
	}
	locktest.Taken(t, store, "a", "b") // the other key of the lease is free as well
}

// A release that never arrived is retried in the background: the next holder does not
// wait for the TTL.
func TestRelease_LostRequestIsRetried(t *testing.T) {
	const ttl = 30 * time.Second
	store, p, other := behindProxy(t, ttl)
	lease := locktest.Taken(t, store, "k")
	p.Drop(1)
	if err := store.Release(t.Context(), lease); !errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("got %v, want ErrOutcomeUnknown", err)
	}
	locktest.Eventually(t, "the key is free", func() bool {
		_, err := other.TryAcquire(t.Context(), "k")
		return err == nil
	})
	if !time.Now().Before(lease.Until) {
		t.Error("free only after the TTL")
	}
}
