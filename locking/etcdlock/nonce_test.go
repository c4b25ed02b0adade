package etcdlock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// Until it compacts, etcd walks over every name that was ever in a queue, so names are
// used again.
func TestAcquire_AHotKeyKeepsItsNames(t *testing.T) {
	t.Parallel()
	g := shared(t)
	store, client, names := g.must(t, 20*time.Second), g.client(t), map[string]bool{}
	owners := map[string]bool{}
	for range 20 {
		l := locktest.Taken(t, store, "k")
		names[inQueue(t, client, g.prefix, "k")[0]], owners[l.Owner] = true, true
		locktest.Released(t, store, l)
	}
	if len(names) != 1 || len(owners) != 20 {
		t.Errorf("%d names and %d owners for 20 successive leases, want 1 and 20", len(names), len(owners))
	}
}

// Requests of an attempt that did not end with an answered release may still arrive.
func TestAcquire_NoNameIsUsedAgainWhileARequestMayBeUnderWay(t *testing.T) {
	t.Parallel()
	store, w, other, g := behindProxy(t, 20*time.Second)
	client := g.client(t)
	for _, c := range []struct {
		name string
		end  func(locking.Lease)
	}{
		{"the answer to release is lost", func(l locking.Lease) { // first: a removal in the background could lose its answer instead
			w.loseDelete()
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				locktest.Eventually(t, "the answer is lost", func() bool { return w.lostSoFar() > 0 })
				cancel()
			}()
			if err := store.Release(ctx, l); !errors.Is(err, locking.ErrOutcomeUnknown) {
				t.Errorf("release: %v", err)
			}
		}},
		{"an operator deleted it", func(l locking.Lease) {
			if _, err := client.Delete(t.Context(), inQueue(t, client, g.prefix, "k")[0]); err != nil {
				t.Error(err)
			}
			if err := store.Release(t.Context(), l); !errors.Is(err, locking.ErrLost) {
				t.Errorf("release: %v", err)
			}
		}},
		{"it was not renewed", func(l locking.Lease) {
			store.mu.Lock()
			store.grants[l.Owner].lease.Until = time.Now()
			store.mu.Unlock()
			store.expire()
		}},
	} {
		lease := locktest.Taken(t, store, "k")
		before := inQueue(t, client, g.prefix, "k")[0]
		c.end(lease)
		next, err := store.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if now := inQueue(t, client, g.prefix, "k"); now[0] == before {
			t.Errorf("%s: %s is used again", c.name, before)
		}
		locktest.Released(t, store, next)
	}
	locktest.Released(t, other, locktest.Taken(t, other, "k"))
}

// A second release, or a concurrent renewal, does not affect the next Lease, which may
// have the same names.
func TestRelease_ConcurrentOnesDoNotAffectALaterLease(t *testing.T) {
	t.Parallel()
	store := shared(t).must(t, 20*time.Second)
	for range 50 {
		l := locktest.Taken(t, store, "a", "b")
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { _ = store.Release(t.Context(), l) })
			all.Go(func() { _, _ = store.Renew(t.Context(), l) })
		}
		next, err := store.Acquire(t.Context(), "a", "b")
		if err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if _, err := store.Renew(t.Context(), next); err != nil {
			t.Fatalf("the next lease: %v", err)
		}
		locktest.Released(t, store, next)
	}
}

// The answer to the first would let the next attempt use the name that the second is about to delete.
func TestRelease_ASecondOneAtTheSameTimeSendsNothing(t *testing.T) {
	t.Parallel()
	store, w, other, _ := behindProxy(t, 20*time.Second)
	lease := locktest.Taken(t, store, "k")
	unblock := w.holdNext("/DeleteRange")
	defer unblock()
	first := make(chan error, 1)
	go func() { first <- store.Release(t.Context(), lease) }()
	locktest.Eventually(t, "the first is under way", func() bool { return w.heldSoFar() == 1 })
	if err := store.Release(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("the second: %v, want %v", err, locking.ErrLost)
	}
	unblock()
	if err := <-first; err != nil {
		t.Errorf("the first: %v", err)
	}
	locktest.Released(t, other, locktest.Taken(t, other, "k"))
}
