// SPDX-License-Identifier: MIT

package zklock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// Connections are cut at random, and single answers and requests are lost, while several Stores contend for
// one key. There is one holder at a time, each with a greater fence, no session expires, and in the end no
// node is left.
func TestStore_ConnectionsCutAtRandomLeaveOneHolderAndNoNode(t *testing.T) {
	t.Parallel()
	const stores, workers, duration = 3, 2, 4 * time.Second
	g := shared(t)
	look := g.must(t, time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var all sync.WaitGroup
	var inside, grants atomic.Int32
	var last atomic.Int64
	sessions := map[*opened]int64{}
	for range stores {
		store, p := g.viaProxy(t, 6*time.Second)
		sessions[store] = sessionOf(store)
		all.Go(func() { disturb(ctx, p) })
		for range workers {
			all.Go(func() {
				for ctx.Err() == nil {
					l, err := store.Acquire(ctx, "k")
					if err != nil {
						continue
					}
					grants.Add(1)
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d holders at once", n)
					}
					if before := last.Swap(int64(l.Fence)); before >= int64(l.Fence) {
						t.Errorf("fence %d after %d", l.Fence, before)
					}
					held := time.Now().Before(l.Until)
					inside.Add(-1)
					if err := store.Release(ctx, l); held && errors.Is(err, locking.ErrLost) {
						t.Errorf("release %+v: %v", l, err)
					}
				}
			})
		}
	}
	all.Wait()
	awaitQueue(t, look, "k", 0)
	for store, session := range sessions {
		if now := sessionOf(store); now != session {
			t.Errorf("session %x, was %x", now, session)
		}
	}
	if grants.Load() == 0 {
		t.Errorf("no grant in %v", duration)
	}
}

// disturb cuts the connection about ten times a second. A third of the time the next answer, or the next
// request, is lost.
func disturb(ctx context.Context, p *proxy) {
	p.writes.Store(true)
	for ctx.Err() == nil {
		switch rand.IntN(6) {
		case 0:
			p.Lose(1)
		case 1:
			p.Drop(1)
		default:
			p.Cut()
		}
		select {
		case <-time.After(time.Duration(rand.IntN(200)) * time.Millisecond):
		case <-ctx.Done():
		}
		p.Lose(0)
		p.Drop(0)
	}
}

// A waiter whose connection is cut again and again keeps its node, and is granted the key.
func TestAcquire_WaiterKeepsItsNodeThroughCuts(t *testing.T) {
	t.Parallel()
	g := shared(t)
	holder := g.must(t, time.Minute)
	waiter, p := g.viaProxy(t, 6*time.Second)
	held := locktest.Taken(t, holder, "k")
	next := acquireInBackground(t.Context(), waiter, "k")
	awaitQueue(t, holder, "k", 2)
	node := queueIn(t, holder, "k")[1]
	for range 5 {
		p.Cut()
		locktest.Eventually(t, "the client has connected again", func() bool { _, _, err := waiter.conn.Exists("/"); return err == nil })
	}
	p.Cut()
	locktest.Released(t, holder, held)
	got := <-next
	if got.error != nil || got.Owner != node[:len(got.Owner)] {
		t.Fatalf("the waiter: %+v, its node was %s", got, node)
	}
	locktest.Released(t, waiter, got.Lease)
}
