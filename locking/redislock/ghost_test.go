// SPDX-License-Identifier: MIT

package redislock

import (
	"errors"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// ghost sends the acquire request of a lease a second time, as a network does that
// delivers a duplicate late.
func ghost(t *testing.T, s *opened, l locking.Lease) {
	t.Helper()
	locks, names := s.names(l.Keys)
	fence, err := Run(t.Context(), s.client, s.scripts.acquire, names, l.Owner, s.ttl.Milliseconds(), len(locks), 0, 0)
	if err != nil || fence == 0 {
		t.Fatalf("the late request got %d, %v", fence, err)
	}
}

// Within the lease the duplicate only restarts the TTL.
func TestGhost_WithinTheLeaseIsTheSameGrant(t *testing.T) {
	store := newStore(t, time.Minute)
	lease := locktest.Taken(t, store, "a", "b")
	ghost(t, store, lease)
	if got := fenceOf(t, store, "a"); got != lease.Fence {
		t.Errorf("the counter is at %d, the lease has %d", got, lease.Fence)
	}
	if _, err := store.Renew(t.Context(), lease); err != nil {
		t.Error(err)
	}
	if err := store.Release(t.Context(), lease); err != nil {
		t.Error(err)
	}
}

// After the lease the duplicate cannot revive it: other holders may have had the key
// since, and the owner alone would not show that.
func TestGhost_AfterTheLeaseDoesNotBringItBack(t *testing.T) {
	store := newStore(t, time.Minute)
	lease := locktest.Taken(t, store, "k")
	store.client.Del(t.Context(), store.Scope("k")+"lock:k") // as if it had expired
	other := beside(t, store)
	locktest.Released(t, other, locktest.Taken(t, other, "k"))
	ghost(t, store, lease)
	if _, err := store.Renew(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew: got %v, want ErrLost", err)
	}
	locktest.WantHeld(t, other, "k") // for one TTL at most; here the holder's own release removes it
	if err := store.Release(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("release: got %v, want ErrLost", err)
	}
	locktest.Taken(t, store, "k")
}

// The duplicate does not touch the lock of the next holder.
func TestGhost_DoesNotTouchTheNextHolder(t *testing.T) {
	store := newStore(t, time.Minute)
	lease := locktest.Taken(t, store, "k")
	store.client.Del(t.Context(), store.Scope("k")+"lock:k")
	other := beside(t, store)
	next := locktest.Taken(t, other, "k")
	locks, names := store.names(lease.Keys)
	if fence, err := Run(t.Context(), store.client, store.scripts.acquire, names, lease.Owner, 60_000, len(locks), 0, 0); err != nil || fence != 0 {
		t.Errorf("the late request got %d, %v, want 0: busy", fence, err)
	}
	if err := other.Release(t.Context(), next); err != nil {
		t.Error(err)
	}
}

// A grant that has lost one of its keys is void: the duplicate makes a new grant of all
// the keys, with a new fence.
func TestGhost_OfAnIncompleteGrantIsANewGrant(t *testing.T) {
	store := newStore(t, time.Minute)
	lease := locktest.Taken(t, store, "a", "b")
	store.client.Del(t.Context(), store.Scope("a")+"lock:a")
	ghost(t, store, lease)
	for _, k := range lease.Keys {
		if got := fenceOf(t, store, k); got <= lease.Fence {
			t.Errorf("%s: the counter is at %d, the old grant had %d", k, got, lease.Fence)
		}
	}
	if _, err := store.Renew(t.Context(), lease); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew of the old grant: got %v, want ErrLost", err)
	}
}

// The owner is all of the text after the fence, not only its end.
func TestScripts_OwnerWithTheSameSuffixIsAnotherOwner(t *testing.T) {
	store := newStore(t, time.Minute)
	locks, all := store.names([]string{"k"})
	for _, foreign := range []string{"1:another-me", "1:another:me", "1me", ":me", "me"} {
		store.client.Set(t.Context(), locks[0], foreign, 0)
		if got, err := Run(t.Context(), store.client, store.scripts.acquire, all, "me", 60_000, 1, 0, 0); err != nil || got != 0 {
			t.Errorf("acquire of a lock with the value %q: got %d, %v", foreign, got, err)
		}
		if got, err := Run(t.Context(), store.client, store.scripts.release, append(locks[:1:1], "mark"), "1:me", "me", "channel", 1); err != nil || got != 0 {
			t.Errorf("release of a lock with the value %q: got %d, %v", foreign, got, err)
		}
		if left := store.client.Get(t.Context(), locks[0]).Val(); left != foreign {
			t.Errorf("the value %q became %q", foreign, left)
		}
	}
}
