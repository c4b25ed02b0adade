// SPDX-License-Identifier: MIT

package etcdfault

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"

	"shop/loadtest/fault"
)

func TestLeasesRevoked_EveryHolderBelowThePrefixLosesItsLockAndNoOther(t *testing.T) {
	client, prefix := shared(t)
	one, two, other := open(t, client, prefix, 6*time.Second), open(t, client, prefix, 6*time.Second), open(t, client, prefix+"x", 6*time.Second)
	var held []locking.Lease
	for i, store := range []locking.Store{one, two, other} {
		l, err := store.TryAcquire(t.Context(), "key", string(rune('a'+i)))
		if i == 1 { // the first store holds the key
			if !errors.Is(err, locking.ErrBusy) {
				t.Fatal(err)
			}
			l, err = store.TryAcquire(t.Context(), "b")
		}
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
	}
	events, err := LeasesRevoked{Client: client, Prefix: prefix, Every: time.Hour}.Inject(t.Context(), 50*time.Millisecond)
	if n := fault.Seen(events)["leases_revoked"]; err != nil || n != 2 || events[0].Hits != n {
		t.Errorf("%+v, %v", events, err)
	}
	for i, store := range []locking.Store{one, two, other} {
		if _, err := store.Renew(t.Context(), held[i]); errors.Is(err, locking.ErrLost) != (i < 2) {
			t.Errorf("store %d: %v", i, err)
		}
	}
}

func TestLeasesRevoked_WithoutALeaseThereIsNoHit(t *testing.T) {
	client, prefix := shared(t)
	events, err := LeasesRevoked{Client: client, Prefix: prefix, Every: time.Millisecond}.Inject(t.Context(), 20*time.Millisecond)
	if err != nil || events[0].Hits != 0 {
		t.Errorf("%+v, %v", events, err)
	}
}

func TestLeasesRevoked_CancelledItReportsWhatItDid(t *testing.T) {
	client, prefix := shared(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	events, err := LeasesRevoked{Client: client, Prefix: prefix, Every: time.Millisecond}.Inject(ctx, time.Hour)
	if !errors.Is(err, context.DeadlineExceeded) || len(events) != 1 {
		t.Errorf("%+v, %v", events, err)
	}
}

func TestEvict_RevokesTheLeaseOfTheHolderAndOfNoWaiter(t *testing.T) {
	client, prefix := shared(t)
	if evicted, err := Evict(t.Context(), client, prefix, "account/1"); evicted || err != nil {
		t.Errorf("a lease without a holder: %v, %v", evicted, err)
	}
	holder, waiter := open(t, client, prefix, 6*time.Second), open(t, client, prefix, 6*time.Second)
	first, err := holder.Acquire(t.Context(), "account/1", "account/2")
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan locking.Lease, 1)
	go func() {
		l, err := waiter.Acquire(context.WithoutCancel(t.Context()), "account/1")
		if err != nil {
			t.Error(err)
		}
		next <- l
	}()
	inLine := func() int {
		got, err := client.Get(t.Context(), prefix+"/9:account/1/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return int(got.Count)
	}
	for inLine() < 2 {
		fault.Wait(t.Context(), time.Millisecond)
	}
	if evicted, err := Evict(t.Context(), client, prefix, "account/1"); !evicted || err != nil {
		t.Fatalf("%v, %v", evicted, err)
	}
	second := <-next
	if second.Fence <= first.Fence {
		t.Errorf("fence %d after %d", second.Fence, first.Fence)
	}
	if _, err := holder.Renew(t.Context(), first); !errors.Is(err, locking.ErrLost) {
		t.Errorf("the holder: %v", err)
	}
	if _, err := waiter.Renew(t.Context(), second); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

func TestLeftovers_AreLocksAndLeasedKeysOnly(t *testing.T) {
	client, prefix := shared(t)
	must := func(want int) {
		t.Helper()
		if left, err := Leftovers(t.Context(), client, prefix); err != nil || len(left) != want {
			t.Errorf("%q, %v; want %d", left, err, want)
		}
	}
	must(0)
	store := open(t, client, prefix, 6*time.Second)
	l, err := store.TryAcquire(t.Context(), "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	must(2)
	if err := store.Release(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	store.Close()
	must(0)
	for key, want := range map[string]int{"/epoch": 0, "/1:a/dead": 1} {
		if _, err := client.Put(t.Context(), prefix+key, ""); err != nil {
			t.Fatal(err)
		}
		must(want)
		if _, err := client.Delete(t.Context(), prefix+key); err != nil {
			t.Fatal(err)
		}
	}
}
