// SPDX-License-Identifier: MIT

package etcdlock

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

func TestClose_RefusesLaterRequests(t *testing.T) {
	t.Parallel()
	store := shared(t).must(t, 20*time.Second)
	lease := locktest.Taken(t, store, "k")
	waited := make(chan error)
	go func() {
		_, err := store.Acquire(t.Context(), "k")
		waited <- err
	}()
	store.Close()
	store.Close() // a second Close has no effect
	_, tried := store.TryAcquire(t.Context(), "other")
	_, held := store.TryAcquire(t.Context(), "k")
	_, asked := store.Acquire(t.Context(), "k")
	_, renewed := store.Renew(t.Context(), lease)
	woken := <-waited
	if !time.Now().Before(lease.Until) {
		t.Error("woken by the end of the lease")
	}
	for what, err := range map[string]error{
		"waiting": woken, "trying": tried, "trying a held key": held, "waiting for a held key": asked,
		"renew": renewed, "release": store.Release(t.Context(), lease),
	} {
		if !errors.Is(err, locking.ErrClosed) || errors.Is(err, locking.ErrLost) || errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want ErrClosed", what, err)
		}
	}
}

// A Store that holds no Lease leaves nothing in etcd, waiters included.
func TestClose_LeavesNothingInEtcd(t *testing.T) {
	t.Parallel()
	g := shared(t)
	holder, store, client := g.must(t, 20*time.Second), g.must(t, 20*time.Second), g.client(t)
	locktest.Taken(t, holder, "k")
	waited := make(chan error)
	go func() {
		_, err := store.Acquire(t.Context(), "k")
		waited <- err
	}()
	awaitWatch(t, store)
	store.Close()
	if err := <-waited; !errors.Is(err, locking.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	if names := inQueue(t, client, g.prefix, "k"); len(names) != 1 {
		t.Errorf("left in etcd: %q", names)
	}
}

// A held Lease keeps its keys until the TTL: its holder may still be writing.
func TestClose_LeavesAHeldLeaseToTheTTL(t *testing.T) {
	t.Parallel()
	g := shared(t)
	store, other := g.must(t, 3*time.Second), g.must(t, 20*time.Second)
	lease := locktest.Taken(t, store, "k")
	store.Close()
	locktest.WantHeld(t, other, "k")
	next, err := other.Acquire(t.Context(), "k")
	if err != nil || time.Now().Before(lease.Until) {
		t.Errorf("%+v, %v, %v before Until", next, err, time.Until(lease.Until))
	}
}

// Close waits for all goroutines (goleak checks after each run), even when etcd does not
// answer and requests are still to be undone; and it does not wait for the TTL.
func TestClose_WaitsForTheBackgroundWork(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	store, w, _, _ := behindProxy(t, ttl)
	w.loseNext(1 << 30)
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for i := range 2 * KeysMax {
		callers.Go(func() {
			if _, err := store.TryAcquire(ctx, strconv.Itoa(i)); err == nil || errors.Is(err, locking.ErrBusy) {
				t.Errorf("got %v", err)
			}
		})
	}
	locktest.Eventually(t, "answers are lost", func() bool { return w.lostSoFar() >= KeysMax })
	cancel()
	callers.Wait()
	asked := time.Now()
	store.Close()
	if took := ranSince(asked); took > ttl/2 {
		t.Errorf("Close took %v", took)
	}
}

// Close ends an Acquire whose request has no answer, or whose undoing has none.
func TestClose_EndsAnAcquireWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]int{"the attempt": 1, "the attempt and its removal": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 24 * time.Second
			store, w, _, _ := behindProxy(t, ttl)
			w.set(func(w *rpcProxy) { w.lose, w.loses, w.said = 1<<30, "/Txn", nil })
			granted := locktest.Beside(func() (locking.Lease, error) { return store.Acquire(t.Context(), "k") })
			locktest.Eventually(t, "no answers", func() bool { return w.lostSoFar() == lost })
			asked := time.Now()
			go store.Close()
			lease, err := (<-granted).Pair()
			if took := ranSince(asked); err == nil || took > ttl/24 {
				t.Errorf("got %+v, %v after %v", lease, err, took)
			}
		})
	}
}
