package redislock

import (
	"testing"
	"time"

	"shop/locking"
)

// ahead puts the counter of key ahead of the clock, so that what the
// counter does is seen, and not only what the clock does. It is the state after
// the server's clock was set back.
func ahead(t *testing.T, s *Store, key string, d time.Duration) locking.Fence {
	t.Helper()
	n := time.Now().Add(d).UnixMicro()
	if err := s.client.Set(t.Context(), s.scope(key)+"fence", n, 0).Err(); err != nil {
		t.Fatal(err)
	}
	return locking.Fence(n)
}

func TestFence_GrowsWhenTheClockWasSetBack(t *testing.T) {
	store := newStore(t, time.Minute)
	last := ahead(t, store, "k", time.Hour)
	for range 5 {
		lease := take(t, store, "k")
		if lease.Fence != last+1 {
			t.Errorf("fence %d after %d", lease.Fence, last)
		}
		last = lease.Fence
		if err := store.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
}

// The counter is what is left when the lock is gone.
func TestFence_CounterHasNoTTL(t *testing.T) {
	store := newStore(t, time.Minute)
	lease := take(t, store, "k")
	counter := store.scope("k") + "fence"
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

// A counter that is lost goes on with the clock, above what it gave before.
func TestFence_SurvivesTheLossOfTheCounter(t *testing.T) {
	store := newStore(t, time.Minute)
	first := take(t, store, "k")
	store.client.Del(t.Context(), store.scope("k")+"fence", store.scope("k")+"lock:k")
	if second := take(t, store, "k"); second.Fence <= first.Fence {
		t.Errorf("fence %d after %d", second.Fence, first.Fence)
	}
}

// A lease of several keys is above the counters of all of them, and raises them all.
func TestFence_OfSeveralKeysIsAboveEachOfTheirs(t *testing.T) {
	store := newStore(t, time.Minute)
	if store.scope("a") == store.scope("b") {
		t.Fatal("a and b are in one bucket: this test needs two")
	}
	high := ahead(t, store, "b", time.Hour)
	for range 2 { // whichever comes first in the script
		both := take(t, store, "a", "b")
		if both.Fence <= high {
			t.Errorf("a and b: fence %d, but one of them had %d", both.Fence, high)
		}
		if err := store.Release(t.Context(), both); err != nil {
			t.Fatal(err)
		}
		for _, k := range []string{"a", "b"} {
			one := take(t, store, k)
			if one.Fence <= both.Fence {
				t.Errorf("%s: fence %d, but with the other it had %d", k, one.Fence, both.Fence)
			}
			if err := store.Release(t.Context(), one); err != nil {
				t.Fatal(err)
			}
		}
		high = ahead(t, store, "a", 2*time.Hour)
	}
}

// The counters do not pile up: there are as many as there are buckets.
func TestFence_CountersAreBounded(t *testing.T) {
	store := newStore(t, time.Minute)
	scopes := map[string]bool{}
	for i := range 100_000 {
		scopes[store.scope(time.Duration(i).String())] = true
	}
	if len(scopes) != buckets {
		t.Errorf("100,000 keys are in %d buckets, want %d", len(scopes), buckets)
	}
}
