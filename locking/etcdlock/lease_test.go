// SPDX-License-Identifier: MIT

package etcdlock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/locktest"
)

// An operator revokes a lease in etcd: it is lost for good, and no other is.
func TestRenew_RevokedByAnOperatorIsLostForGood(t *testing.T) {
	t.Parallel()
	g := shared(t)
	store, other, client := g.must(t, 20*time.Second), g.must(t, 20*time.Second), g.client(t)
	lease, second := locktest.Taken(t, store, "a", "b"), locktest.Taken(t, store, "c")
	if _, err := client.Revoke(t.Context(), leaseOf(t, client, inQueue(t, client, g.prefix, "a")[0])); err != nil {
		t.Fatal(err)
	}
	next := locktest.Taken(t, other, "a", "b")
	if next.Fence <= lease.Fence {
		t.Errorf("fence %d after %d", next.Fence, lease.Fence)
	}
	for range 2 {
		if _, err := store.Renew(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
			t.Errorf("renew: got %v, want ErrLost", err)
		}
		if err := store.Release(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
			t.Errorf("release: got %v, want ErrLost", err)
		}
	}
	locktest.WantHeld(t, store, "a")
	second, err := store.Renew(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	locktest.Released(t, store, second)
}

// The lease that is free for the next owner is gone from etcd: that owner gets another.
func TestTryAcquire_DetectsThatAFreeLeaseIsGone(t *testing.T) {
	t.Parallel()
	g := shared(t)
	store, client := g.must(t, 60*time.Second), g.client(t)
	locktest.Released(t, store, locktest.Taken(t, store, "k"))
	if _, err := client.Revoke(t.Context(), store.locks.free[0].id); err != nil {
		t.Fatal(err)
	}
	locktest.Released(t, store, locktest.Taken(t, store, "k"))
}

// One key of several is deleted: the Lease is lost, and its other keys are freed.
func TestRenew_OneKeyDeletedByAnOperatorLosesAll(t *testing.T) {
	t.Parallel()
	g := shared(t)
	store, client := g.must(t, 20*time.Second), g.client(t)
	for name, request := range map[string]func(locking.Lease) error{
		"renew":   func(l locking.Lease) error { _, err := store.Renew(t.Context(), l); return err },
		"release": func(l locking.Lease) error { return store.Release(t.Context(), l) },
	} {
		lease := locktest.Taken(t, store, "a", "b", "c")
		if _, err := client.Delete(t.Context(), inQueue(t, client, g.prefix, "b")[0]); err != nil {
			t.Fatal(err)
		}
		if err := request(lease); !errors.Is(err, locking.ErrLost) {
			t.Errorf("%s: got %v, want ErrLost", name, err)
		}
		next, err := store.Acquire(t.Context(), "a", "b", "c")
		if err != nil {
			t.Fatal(err)
		}
		locktest.Released(t, store, next)
	}
}

// A late release, or one with another fence, frees no key.
func TestRelease_ComparesTheRevision(t *testing.T) {
	t.Parallel()
	store := shared(t).must(t, 20*time.Second)
	lease := locktest.Taken(t, store, "k")
	forged := lease
	forged.Fence--
	if err := store.Release(t.Context(), forged); !errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	if _, err := store.Renew(t.Context(), forged); !errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	locktest.WantHeld(t, store, "k")
	locktest.Released(t, store, lease)
	next := locktest.Taken(t, store, "k")
	if err := store.Release(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	locktest.WantHeld(t, store, "k")
	locktest.Released(t, store, next)
}

// Renew sends a keep-alive each time, and does not return a remembered Until.
func TestRenew_ReturnsALaterUntilEachTime(t *testing.T) {
	t.Parallel()
	const ttl = 20 * time.Second
	store := shared(t).must(t, ttl)
	lease := locktest.Taken(t, store, "k")
	for range 5 {
		asked := time.Now()
		next, err := store.Renew(t.Context(), lease)
		if err != nil {
			t.Fatal(err)
		}
		if !next.Until.After(lease.Until) || next.Until.Before(asked.Add(ttl-driver.DefaultMargin(ttl))) || next.Fence != lease.Fence {
			t.Errorf("%+v, then %+v", lease, next)
		}
		lease = next
	}
	locktest.Released(t, store, lease)
}

// T16: the trust of a keep-alive counts from its sending, however late the answer is.
func TestRenew_LateAnswerDoesNotProlongTrust(t *testing.T) {
	t.Parallel()
	const ttl, late = 20 * time.Second, 200 * time.Millisecond
	store, w, _, _ := behindProxy(t, ttl)
	w.delayEach(late)
	lease := locktest.Taken(t, store, "k")
	for range 3 {
		next, err := store.Renew(t.Context(), lease)
		if left := time.Until(next.Until); err != nil || left > ttl-driver.DefaultMargin(ttl)-late {
			t.Errorf("a lease is trusted for %v, %v", left, err)
		}
	}
}

// A waiter keeps its lease, and the grant is trusted from its last keep-alive.
func TestAcquire_AWaiterOutlivesItsTTL(t *testing.T) {
	locktest.Slow(t, "waits longer than a TTL of etcd")
	t.Parallel()
	const ttl = minTTL
	g := shared(t)
	holder, store, client := g.must(t, 20*time.Second), g.must(t, ttl), g.client(t)
	held := locktest.Taken(t, holder, "k")
	granted := locktest.Beside(func() (locking.Lease, error) { return store.Acquire(t.Context(), "k") })
	locktest.Eventually(t, "it waits", func() bool { return waiting(t, client, g.prefix, "k") == 1 })
	place := inQueue(t, client, g.prefix, "k")[1]
	<-time.After(2 * ttl)
	locktest.Released(t, holder, held)
	next, err := (<-granted).Pair()
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(next.Until); left < ttl/4 || left > ttl || !isOf(place, next) {
		t.Errorf("granted %+v, which is trusted for %v; it waited as %s", next, left, place)
	}
	locktest.Released(t, store, next)
}

// Until it compacts, etcd walks over every name that was ever in a queue, so names are
// used again, with the lease that they have.
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

// Requests of an owner that did not end with an answered release may still arrive.
func TestAcquire_NoNameIsUsedAgainWhileARequestMayBeUnderWay(t *testing.T) {
	t.Parallel()
	store, w, other, g := behindProxy(t, 20*time.Second)
	client := g.client(t)
	for _, c := range []struct {
		name string
		end  func(locking.Lease)
	}{
		{"the answer to release is lost", func(l locking.Lease) { // first: a removal in the background could lose its answer instead
			w.loseTxn(nil)
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

// Of several releases one makes the lease in etcd free for another owner.
func TestRelease_FreesItsLeaseOnce(t *testing.T) {
	t.Parallel()
	store := shared(t).must(t, 20*time.Second)
	lease := locktest.Taken(t, store, "k")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { _ = store.Release(t.Context(), lease) })
	}
	all.Wait()
	if n := len(store.locks.free); n != 1 {
		t.Errorf("%d leases are free, want 1", n)
	}
	a, b := locktest.Taken(t, store, "a"), locktest.Taken(t, store, "b")
	first, _, _ := marked(a.Owner)
	if second, _, _ := marked(b.Owner); first == second {
		t.Errorf("two owners have one lease: %+v, %+v", a, b)
	}
}
