// SPDX-License-Identifier: MIT

package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/locktest"
)

// behindProxy makes a Store behind a proxy that can disturb its requests, and a second
// Store in the same key space that connects directly.
func behindProxy(t *testing.T, ttl time.Duration) (*Store, *rpcProxy, *Store, target) {
	t.Helper()
	g := shared(t)
	w, far := newProxy(t, g.endpoints[0]), g
	far.endpoints = []string{w.addr}
	store := far.must(t, ttl)
	locktest.Released(t, store, locktest.Taken(t, store, "warm-up"))
	return store, w, g.must(t, ttl), g
}

// T5, T6: etcd applied the transaction, and the answer came too late for ctx. The
// call returns at once with ctx's error, and the abandoned waiter is removed long
// before the TTL, without harm to other leases.
func TestAcquire_CtxThatEndsAfterTheTxnWasAppliedLeavesNoOrphan(t *testing.T) {
	t.Parallel()
	for name, acquire := range map[string]func(*Store, context.Context, ...string) (locking.Lease, error){
		"waiting": (*Store).Acquire, "trying": (*Store).TryAcquire,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, w, other, g := behindProxy(t, 20*time.Second)
			held, client := locktest.Taken(t, store, "held"), g.client(t)
			w.loseTxn(nil)
			ctx, cancel := context.WithCancel(t.Context())
			result := make(chan error)
			go func() {
				_, err := acquire(store, ctx, "a", "b")
				result <- err
			}()
			locktest.Eventually(t, "the answer is lost", func() bool { return w.lostSoFar() == 1 })
			if len(inQueue(t, client, g.prefix, "a")) != 1 {
				t.Error("the transaction was not applied: the test has no effect")
			}
			cancel()
			asked := time.Now()
			err := <-result
			if took := ranSince(asked); took > time.Second {
				t.Errorf("returned after %v", took)
			}
			if !errors.Is(err, context.Canceled) || !errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, locking.ErrBusy) {
				t.Errorf("got %v, want Canceled and ErrOutcomeUnknown", err)
			}
			locktest.Eventually(t, "it is undone", func() bool { return len(inQueue(t, client, g.prefix, "a")) == 0 })
			locktest.Released(t, other, locktest.Taken(t, other, "a", "b"))
			locktest.Released(t, store, locktest.Taken(t, store, "a", "b"))
			locktest.Released(t, store, held)
			if took := ranSince(asked); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// Only the answer was lost, or etcd did not know the outcome: the Store undoes the
// attempt and makes a new one.
func TestAcquire_UndoesALostAnswerAndRetries(t *testing.T) {
	t.Parallel()
	for name, said := range map[string]error{"silence": nil, "etcd does not know": rpctypes.ErrGRPCTimeout, "the connection broke": status.Error(codes.Unavailable, "EOF")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, w, other, g := behindProxy(t, 3*time.Second)
			client := g.client(t)
			w.loseTxn(said)
			lease := locktest.Taken(t, store, "a", "b")
			if w.lostSoFar() != 1 {
				t.Fatalf("%d answers were lost, want 1", w.lostSoFar())
			}
			for _, k := range lease.Keys {
				if names := inQueue(t, client, g.prefix, k); len(names) != 1 || !isOf(names[0], lease) {
					t.Errorf("queue of %s: %q, want %s alone", k, names, lease.Owner)
				}
			}
			locktest.WantHeld(t, other, "b")
			locktest.Released(t, store, lease)
		})
	}
}

// A refused request had no effect, so it is not undone, and its outcome is known.
func TestAcquire_RefusalIsNotAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	store, w, _, _ := behindProxy(t, 3*time.Second)
	w.loseTxn(rpctypes.ErrGRPCPermissionDenied)
	if _, err := store.TryAcquire(t.Context(), "k"); err == nil || errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, locking.ErrBusy) {
		t.Errorf("got %v", err)
	}
	for _, passes := range []error{rpctypes.ErrNoLeader, rpctypes.ErrTooManyRequests} { // the request is repeated
		if err := store.locks.classify(t.Context(), passes); !driver.Known(err) || !errors.Is(err, passes) {
			t.Errorf("%v becomes %v", passes, err)
		}
	}
}

// A late request arrives after it was undone: its lease is gone.
func TestAcquire_RequestThatArrivesAfterItWasUndoneDoesNothing(t *testing.T) {
	t.Parallel()
	store, w, other, g := behindProxy(t, 20*time.Second)
	client := g.client(t)
	unblock := w.holdNext("/Txn")
	defer unblock()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() {
		_, err := store.Acquire(ctx, "k")
		result <- err
	}()
	locktest.Eventually(t, "the request is delayed", func() bool { return w.heldSoFar() == 1 })
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	locktest.Eventually(t, "the attempt is undone", func() bool {
		store.locks.mu.Lock()
		defer store.locks.mu.Unlock()
		return len(store.locks.left) == 0
	})
	locktest.Released(t, store, locktest.Taken(t, store, "k"))
	unblock()
	locktest.Eventually(t, "the late request is served", func() bool { return w.servedSoFar() == 1 })
	if names := inQueue(t, client, g.prefix, "k"); len(names) > 0 {
		t.Errorf("the late request put %q", names)
	}
	locktest.Released(t, other, locktest.Taken(t, other, "k"))
}

// A member that is cut off from the others refuses each request at once, so that it is repeated at another member. Only a
// keep-alive waits.
func TestRequests_RequireALeader(t *testing.T) {
	t.Parallel()
	store, w, other, _ := behindProxy(t, 20*time.Second)
	lease := locktest.Taken(t, store, "k")
	if _, err := store.Renew(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	locktest.Released(t, store, lease)
	locktest.Released(t, store, locktest.Taken(t, store, "a", "b"))

	held := locktest.Taken(t, other, "k")
	ctx, cancel := context.WithCancel(t.Context())
	left := locktest.Beside(func() (locking.Lease, error) { return store.Acquire(ctx, "k") })
	locktest.Eventually(t, "it watches", func() bool { return w.streamsSoFar() > 0 })
	cancel()
	<-left
	locktest.Eventually(t, "the waiter is removed", func() (removed bool) {
		w.set(func(w *rpcProxy) { removed = w.eager["LeaseRevoke"] > 0 })
		return removed
	})
	locktest.Released(t, other, held)
	w.set(func(w *rpcProxy) {
		for _, method := range []string{"Txn", "Watch", "LeaseGrant", "LeaseRevoke"} {
			if w.patient[method] > 0 || w.eager[method] == 0 {
				t.Errorf("%s: %d requests wait for a leader, %d require one", method, w.patient[method], w.eager[method])
			}
		}
		if w.eager["LeaseKeepAlive"] > 0 {
			t.Errorf("%d keep-alives require a leader: the client would repeat them in a busy loop", w.eager["LeaseKeepAlive"])
		}
	})
}
