package etcdlock

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// The session is kept alive, an abandoned Lease is not: it ends at its Until, while a
// Lease that is renewed continues. A round is void if the machine stalled until the
// Lease to be renewed had expired.
func TestExpire_AbandonedLeaseEndsAtItsUntilThoughTheSessionLives(t *testing.T) {
	locktest.Slow(t, "the end of a lease of etcd, several seconds")
	t.Parallel()
	for range 5 {
		if abandon(t, shared(t)) {
			return
		}
	}
	t.Error("in 5 rounds no lease was renewed in time")
}

func abandon(t *testing.T, g target) (inTime bool) {
	store, other := g.must(t, 3*time.Second), g.must(t, 20*time.Second)
	session := id(store)
	kept, abandoned := locktest.Taken(t, store, "kept"), locktest.Taken(t, store, "abandoned")
	life, end := context.WithCancel(t.Context())
	renewed := make(chan bool, 1)
	go func() {
		for sleep(life, time.Second) {
			next, err := store.Renew(life, kept)
			if err != nil && life.Err() == nil {
				noAnswer := errors.Is(err, errNoAnswer) || errors.Is(err, locking.ErrOutcomeUnknown)
				if time.Now().Before(kept.Until) && !noAnswer {
					t.Errorf("renew: %v, %v before Until", err, time.Until(kept.Until))
				}
				renewed <- false
				return
			}
			if err == nil {
				kept = next
			}
		}
		renewed <- true
	}()
	next, err := other.Acquire(t.Context(), "abandoned")
	late := ranSince(abandoned.Until)
	end()
	if !<-renewed {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	if time.Now().Before(abandoned.Until) || late > 10*time.Second { // the session would keep it for ever
		t.Errorf("granted to the next holder %v after Until", late)
	}
	if !time.Now().Before(kept.Until) {
		return false
	}
	locktest.WantHeld(t, other, "kept")
	if id(store) != session {
		t.Error("the session has ended")
	}
	if _, err := store.Renew(t.Context(), abandoned); !errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	locktest.Released(t, other, next)

	// It ends too when it is renewed no more.
	ctx, cancel := context.WithDeadline(t.Context(), kept.Until.Add(10*time.Second))
	defer cancel()
	if next, err = other.Acquire(ctx, "kept"); err != nil || time.Now().Before(kept.Until) {
		t.Fatalf("kept, %v after its last Until: %v", time.Since(kept.Until), err)
	}
	locktest.Released(t, other, next)
	return true
}

// The one timer of the Store is set to the first Until, again after it has expired a lease, and after it found none.
func TestExpire_TheTimerIsSetAgain(t *testing.T) {
	locktest.Slow(t, "the end of a lease of etcd, several seconds")
	t.Parallel()
	g := shared(t)
	store, other := g.must(t, 6*time.Second), g.must(t, 20*time.Second)
	later := func(d time.Duration, keys ...string) {
		store.mu.Lock()
		for _, held := range store.grants {
			if slices.Equal(held.keys, keys) {
				held.lease.Until = time.Now().Add(d)
			}
		}
		store.mu.Unlock()
	}
	ended := func(key string) func() bool {
		return func() bool { return store.queue.Len(key) == 0 }
	}
	for range 2 {
		for _, key := range []string{"a", "b", "c"} {
			locktest.Taken(t, store, key)
		}
		later(0, "a")
		later(time.Second, "b")
		later(8*time.Second, "c")
		last := time.Now().Add(8 * time.Second)
		store.expire()
		locktest.Eventually(t, "b ends", ended("b"))
		if !time.Now().Before(last) {
			t.Error("b has ended with c: the timer was set to the last Until, or the machine was slow")
		}
		locktest.Eventually(t, "c ends", ended("c"))
		locktest.Eventually(t, "the timer is not set", func() bool {
			store.mu.Lock()
			defer store.mu.Unlock()
			return store.timer == nil
		})
		next, err := other.Acquire(t.Context(), "a", "b", "c")
		if err != nil {
			t.Fatal(err)
		}
		locktest.Released(t, other, next)
	}
	locktest.Taken(t, store, "d")
	locktest.Eventually(t, "a lease ends after the timer has found none", ended("d"))
}

// The timer runs when the machine lets it. A Lease is over at its Until all the same.
func TestExpire_ALateTimerProlongsNoLease(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(*Store, locking.Lease) error{
		"renew":   func(s *Store, l locking.Lease) error { _, err := s.Renew(t.Context(), l); return err },
		"release": func(s *Store, l locking.Lease) error { return s.Release(t.Context(), l) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := shared(t)
			store, other := g.must(t, minTTL), g.must(t, 20*time.Second)
			lease := locktest.Taken(t, store, "a")
			store.mu.Lock()
			store.timer.Stop()
			store.mu.Unlock()
			for sleep(t.Context(), time.Until(lease.Until)) && time.Now().Before(lease.Until) {
			}
			if err := locktest.Insist(t.Context(), func(bool) error { return ask(store, lease) }); !errors.Is(err, locking.ErrLost) {
				t.Fatalf("got %v, want ErrLost", err)
			}
			next, err := other.Acquire(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			locktest.Released(t, other, next)
		})
	}
}
