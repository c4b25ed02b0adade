// SPDX-License-Identifier: MIT

package redislock

import (
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// ahead puts the counter of key ahead of the clock, as after the server's clock was set
// back, so that the fence comes from the counter and not from the clock.
func ahead(t *testing.T, s *opened, key string, d time.Duration) locking.Fence {
	t.Helper()
	n := time.Now().Add(d).UnixMicro()
	if err := s.client.Set(t.Context(), s.Scope(key)+"fence", n, 0).Err(); err != nil {
		t.Fatal(err)
	}
	return locking.Fence(n)
}

func TestFence_GrowsWhenTheClockWasSetBack(t *testing.T) {
	store := newStore(t, time.Minute)
	last := ahead(t, store, "k", time.Hour)
	for range 5 {
		lease := locktest.Taken(t, store, "k")
		if lease.Fence != last+1 {
			t.Errorf("fence %d after %d", lease.Fence, last)
		}
		last = lease.Fence
		if err := store.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
}

// The counter remains after the lock is released.
func TestFence_CounterHasNoTTL(t *testing.T) {
	store := newStore(t, time.Minute)
	lease := locktest.Taken(t, store, "k")
	counter := store.Scope("k") + "fence"
	if err := store.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if ttl := store.client.TTL(t.Context(), counter).Val(); ttl != -1 {
		t.Errorf("the counter has the TTL %v (-1: none, -2: it does not exist)", ttl)
	}
	if got := fenceOf(t, store, "k"); got != lease.Fence {
		t.Errorf("the counter is at %d after fence %d", got, lease.Fence)
	}
}

// After the loss of its counter the fence continues with the clock, above earlier fences.
func TestFence_SurvivesTheLossOfTheCounter(t *testing.T) {
	store := newStore(t, time.Minute)
	first := locktest.Taken(t, store, "k")
	store.client.Del(t.Context(), store.Scope("k")+"fence", store.Scope("k")+"lock:k")
	if second := locktest.Taken(t, beside(t, store), "k"); second.Fence <= first.Fence {
		t.Errorf("fence %d after %d", second.Fence, first.Fence)
	}
}

// The fence of several keys is above the counters of all of them, and raises them all.
func TestFence_OfSeveralKeysIsAboveEachCounter(t *testing.T) {
	store := newStore(t, time.Minute)
	if store.Scope("a") == store.Scope("b") {
		t.Fatal("a and b are in one bucket: this test needs two")
	}
	high := ahead(t, store, "b", time.Hour)
	for range 2 { // the counter that is ahead is the second in the script, then the first
		both := locktest.Taken(t, store, "a", "b")
		if both.Fence <= high {
			t.Errorf("a and b: fence %d, but one of them had %d", both.Fence, high)
		}
		if err := store.Release(t.Context(), both); err != nil {
			t.Fatal(err)
		}
		for _, k := range []string{"a", "b"} {
			one := locktest.Taken(t, store, k)
			if one.Fence <= both.Fence {
				t.Errorf("%s alone: fence %d, want more than %d of both keys", k, one.Fence, both.Fence)
			}
			if err := store.Release(t.Context(), one); err != nil {
				t.Fatal(err)
			}
		}
		high = ahead(t, store, "a", 2*time.Hour)
	}
}

// The counters do not accumulate: there are at most as many as buckets.
func TestFence_CountersAreBounded(t *testing.T) {
	store := newStore(t, time.Minute)
	scopes := map[string]bool{}
	for i := range 100_000 {
		scopes[store.Scope(time.Duration(i).String())] = true
	}
	if len(scopes) != buckets {
		t.Errorf("100,000 keys are in %d buckets, want %d", len(scopes), buckets)
	}
}
