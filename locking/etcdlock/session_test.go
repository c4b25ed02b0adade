package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// An operator revokes the session's lease: all Leases under it are lost, and a new
// session revives none of them.
func TestSession_RevokedByAnOperatorIsLostForGood(t *testing.T) {
	t.Parallel()
	g := shared(t)
	store, other, client := g.must(t, 20*time.Second), g.must(t, 20*time.Second), g.client(t)
	lease, session := locktest.Taken(t, store, "a", "b"), id(store)
	second := locktest.Taken(t, store, "c")
	if _, err := client.Revoke(t.Context(), session); err != nil {
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
	}
	soon, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	again, err := store.Acquire(soon, "c") // under a new session
	if err != nil || id(store) == session || again.Fence <= second.Fence {
		t.Fatalf("got %+v, %v, under session %x", again, err, id(store))
	}
	for _, old := range []locking.Lease{lease, second} {
		if _, err := store.Renew(t.Context(), old); !errors.Is(err, locking.ErrLost) {
			t.Errorf("renew: got %v, want ErrLost", err)
		}
		if err := store.Release(t.Context(), old); !errors.Is(err, locking.ErrLost) {
			t.Errorf("release: got %v, want ErrLost", err)
		}
	}
	locktest.WantHeld(t, store, "a")
	locktest.WantHeld(t, other, "c")
}

// The Store has not noticed yet that its session's lease is gone: the first request
// detects it, and is retried under a new session.
func TestTryAcquire_DetectsThatTheSessionsLeaseIsGone(t *testing.T) {
	t.Parallel()
	g := shared(t)
	store, client := g.must(t, 60*time.Second), g.client(t)
	session := id(store)
	if _, err := client.Revoke(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	locktest.Released(t, store, locktest.Taken(t, store, "k"))
	if now := id(store); now == session || now == 0 {
		t.Errorf("session %x, was %x", now, session)
	}
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
	store := shared(t).must(t, 20*time.Second)
	lease := locktest.Taken(t, store, "k")
	for range 5 {
		asked := time.Now()
		next, err := store.Renew(t.Context(), lease)
		if err != nil {
			t.Fatal(err)
		}
		if !next.Until.After(lease.Until) || next.Until.Before(asked.Add(store.trust)) || next.Fence != lease.Fence {
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
	lease, session := locktest.Taken(t, store, "k"), store.session
	for range 3 {
		if err := locktest.Insist(t.Context(), func(bool) error { return session.renew(t.Context()) }); err != nil {
			t.Fatal(err)
		}
		store.mu.Lock()
		left := time.Until(session.until)
		store.mu.Unlock()
		if left > ttl-margin(ttl)-late {
			t.Errorf("trusted for %v after an answer that took %v", left, late)
		}
		next, err := store.Renew(t.Context(), lease)
		if left := time.Until(next.Until); err != nil || left > ttl-margin(ttl)-late {
			t.Errorf("a lease is trusted for %v, %v", left, err)
		}
	}
}

// An abandoned session is not kept alive: its lease has to end.
func TestRenew_SendsNoKeepAliveForAnAbandonedSession(t *testing.T) {
	t.Parallel()
	store, w, _, _ := behindProxy(t, 20*time.Second)
	lease, session := locktest.Taken(t, store, "k"), store.session
	session.die(errOrphans)
	defer w.holdNext("/LeaseKeepAlive")()
	if _, err := store.Renew(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew: got %v, want ErrLost", err)
	}
	if n := w.heldSoFar(); n > 0 {
		t.Errorf("%d keep-alives were sent", n)
	}
}
