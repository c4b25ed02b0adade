// SPDX-License-Identifier: MIT

package zklock

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// Goal: a request whose answer is lost is found again, and an attempt that was given up leaves no
// node. Method: a proxy that loses single requests or answers, and a look into the queue.

// viaProxy makes a Store behind a proxy.
func (g target) viaProxy(t *testing.T, ttl time.Duration) (*opened, *proxy) {
	t.Helper()
	p := newProxy(t, g.servers[0])
	g.servers = []string{p.Addr}
	return g.must(t, ttl), p
}

type granted struct {
	locking.Lease
	error
}

// acquireInBackground starts to wait for a key.
func acquireInBackground(ctx context.Context, s *opened, key string) <-chan granted {
	got := make(chan granted, 1)
	go func() {
		l, err := s.Acquire(ctx, key)
		got <- granted{l, err}
	}()
	return got
}

func awaitQueue(t *testing.T, s *opened, key string, n int) {
	t.Helper()
	locktest.Eventually(t, "the queue has the expected length", func() bool { return len(queueIn(t, s, key)) == n })
}

// awaitWatch waits until a request of the Store waits for the node before its own. A node in the queue is
// not enough: the request may not have its answer yet.
func awaitWatch(t *testing.T, s *opened) {
	t.Helper()
	locktest.Eventually(t, "the request waits for the node before its own", func() bool {
		s.locks.mu.Lock()
		defer s.locks.mu.Unlock()
		return len(s.watches) > 0
	})
}

// The server has created the node of a waiter, and the answer is lost. The waiter keeps this
// position, and creates no second node.
func TestAcquire_LostAnswerToCreateIsFoundByTheOwnerInTheName(t *testing.T) {
	t.Parallel()
	g := shared(t)
	holder, last := g.must(t, time.Minute), g.must(t, time.Minute)
	waiter, p := g.viaProxy(t, 4*time.Second)
	held := locktest.Taken(t, holder, "k")
	p.lose(1)
	second := acquireInBackground(t.Context(), waiter, "k")
	awaitQueue(t, holder, "k", 2)
	position := queueIn(t, holder, "k")[1]
	third := acquireInBackground(t.Context(), last, "k")
	awaitQueue(t, holder, "k", 3)

	locktest.Released(t, holder, held)
	got := <-second
	if got.error != nil || p.Lost() == 0 || !strings.HasPrefix(position, got.Owner+"-") {
		t.Fatalf("the waiter: %+v, lost answers: %d, its node was %s", got, p.Lost(), position)
	}
	if queue := queueIn(t, holder, "k"); len(queue) != 2 || queue[0] != position {
		t.Errorf("the queue is %q", queue)
	}
	locktest.Released(t, waiter, got.Lease)
	if next := <-third; next.error != nil || next.Fence <= got.Fence {
		t.Errorf("the third: %+v after %+v", next, got)
	}
}

// The request to create the node does not reach the server. It is sent again on another connection.
func TestTryAcquire_LostRequestIsSentAgain(t *testing.T) {
	t.Parallel()
	g := shared(t)
	store, p := g.viaProxy(t, 4*time.Second)
	look := g.must(t, time.Minute)
	p.writes.Store(true)
	p.Drop(1)
	l := locktest.Taken(t, store, "k")
	if queue := queueIn(t, look, "k"); len(queue) != 1 {
		t.Errorf("the queue is %q", queue)
	}
	locktest.Released(t, store, l)
	awaitQueue(t, look, "k", 0)
}

// The caller leaves while the answer is missing. The node is removed, and another lease of the same
// Store is not affected.
func TestTryAcquire_CtxThatEndsLeavesNoNode(t *testing.T) {
	t.Parallel()
	g := shared(t)
	look := g.must(t, time.Minute)
	store, p := g.viaProxy(t, 6*time.Second)
	other := locktest.Taken(t, store, "other")
	p.writes.Store(true)
	p.Lose(math.MaxInt)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		locktest.Eventually(t, "the node is created", func() bool { return len(queueIn(t, look, "k")) == 1 })
	}()
	if _, err := store.TryAcquire(ctx, "k"); !errors.Is(err, context.Canceled) || !errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("got %v, want Canceled and ErrOutcomeUnknown", err)
	}
	p.Lose(0)
	awaitQueue(t, look, "k", 0)
	locktest.Eventually(t, "the other lease is renewed", func() bool {
		_, err := store.Renew(t.Context(), other)
		if errors.Is(err, locking.ErrLost) {
			t.Fatal("the other lease is lost")
		}
		return err == nil
	})
}

// A waiter that leaves does not free the one behind it.
func TestAcquire_WaiterThatLeavesFreesNoOther(t *testing.T) {
	t.Parallel()
	g := shared(t)
	a, b, c := g.must(t, time.Minute), g.must(t, time.Minute), g.must(t, time.Minute)
	held := locktest.Taken(t, a, "k")
	ctx, cancel := context.WithCancel(t.Context())
	second := acquireInBackground(ctx, b, "k")
	awaitQueue(t, a, "k", 2)
	awaitWatch(t, b)
	third := acquireInBackground(t.Context(), c, "k")
	awaitQueue(t, a, "k", 3)
	awaitWatch(t, c)
	cancel()
	if got := <-second; !errors.Is(got.error, locking.ErrBusy) || !errors.Is(got.error, context.Canceled) {
		t.Errorf("got %v, want ErrBusy and Canceled", got.error)
	}
	awaitQueue(t, a, "k", 2)
	locktest.Released(t, c, locktest.Taken(t, c, "other")) // the third has heard before: events and answers come in order
	select {
	case got := <-third:
		t.Fatalf("granted while the key is held: %+v", got)
	default:
	}
	locktest.Released(t, a, held)
	if got := <-third; got.error != nil {
		t.Error(got.error)
	}
}

// Waiters that come and leave set one watch.
func TestAcquire_WaitersShareAWatch(t *testing.T) {
	t.Parallel()
	g := shared(t)
	a, b := g.must(t, time.Minute), g.must(t, time.Minute)
	held := locktest.Taken(t, a, "k")
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		waiter := acquireInBackground(ctx, b, "k")
		awaitQueue(t, a, "k", 2)
		awaitWatch(t, b)
		cancel()
		<-waiter
		awaitQueue(t, a, "k", 1)
	}
	if n := b.watching.Load(); n != 1 {
		t.Errorf("%d watches, want 1", n)
	}
	locktest.Released(t, a, held)
	locktest.Eventually(t, "no watch is left", func() bool { return b.watching.Load() == 0 })
}

// Requests that create no node leave nothing in the Store.
func TestTryAcquire_BusyLeavesNothing(t *testing.T) {
	t.Parallel()
	g := shared(t)
	a, b := g.must(t, time.Minute), g.must(t, time.Minute)
	held := locktest.Taken(t, a, "k")
	for range 5 {
		locktest.WantHeld(t, b, "k")
	}
	b.locks.mu.Lock()
	if n := len(b.nodes); n != 0 {
		t.Errorf("%d nodes are remembered", n)
	}
	b.locks.mu.Unlock()
	locktest.Released(t, a, held)
	if n := len(a.nodes); n != 0 {
		t.Errorf("%d nodes are remembered after the release", n)
	}
}

// A waiter that leaves while no server can be reached is removed when one can: its session lives on.
func TestAcquire_ThatLeavesDuringAnOutageIsRemoved(t *testing.T) {
	t.Parallel()
	g := shared(t)
	look := g.must(t, time.Minute)
	held := locktest.Taken(t, look, "k")
	waiter, p := g.viaProxy(t, 20*time.Second)
	session := sessionOf(waiter)
	ctx, cancel := context.WithCancel(t.Context())
	left := acquireInBackground(ctx, waiter, "k")
	awaitQueue(t, look, "k", 2)
	awaitWatch(t, waiter)
	p.Down()
	cancel()
	if got := <-left; !errors.Is(got.error, context.Canceled) {
		t.Errorf("got %v, want Canceled", got.error)
	}
	p.Up(t)
	awaitQueue(t, look, "k", 1)
	if sessionOf(waiter) != session {
		t.Error("the session has ended: this shows nothing")
	}
	locktest.Released(t, look, held)
}
