// SPDX-License-Identifier: MIT

package etcdlock

import (
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// After a restart with its data, the holder still holds, the waiter still waits, and
// fences keep growing.
func TestRestart_HolderAndWaiterKeepTheirPositions(t *testing.T) {
	locktest.Slow(t, "a restart of etcd")
	t.Parallel()
	m := servertest.StartEtcd(t, 1)[0]
	g := at(t, m.Addr)
	const ttl = 15 * time.Second
	holder, waiter, other, client := g.must(t, ttl), g.must(t, ttl), g.must(t, ttl), g.client(t)
	held := locktest.Taken(t, holder, "k")
	next := make(chan locking.Lease, 1)
	go func() {
		l, err := waiter.Acquire(t.Context(), "k")
		if err != nil {
			t.Errorf("the waiter: %v", err)
		}
		next <- l
	}()
	awaitWatch(t, waiter)
	before := inQueue(t, client, g.prefix, "k")
	m.Restart()
	locktest.Eventually(t, "the holder renews", func() bool {
		renewed, err := holder.Renew(t.Context(), held)
		if err == nil {
			held = renewed
		}
		return err == nil
	})
	locktest.WantHeld(t, other, "k")
	locktest.Released(t, holder, held)
	if l := <-next; l.Fence <= held.Fence || inQueue(t, client, g.prefix, "k")[0] != before[1] {
		t.Errorf("the waiter got %+v; was in the queue as %s", l, before[1])
	}
	if l := locktest.Taken(t, other, "another"); l.Fence <= held.Fence {
		t.Errorf("fence %d after %d", l.Fence, held.Fence)
	}
}

// The revision from which a watch would continue is compacted: the connection was cut,
// the awaited event happened, and etcd compacted past it. The queue is read again.
func TestAcquire_CompactionWhileWaitingMissesNoEvent(t *testing.T) {
	locktest.Slow(t, "an etcd of its own")
	t.Parallel()
	m := servertest.StartEtcd(t, 1)[0]
	g := at(t, m.Addr)
	far, proxy := g, servertest.NewProxy(t, m.Addr)
	far.endpoints = []string{proxy.Addr}
	holder, store, client := g.must(t, 20*time.Second), far.must(t, 20*time.Second), g.client(t)
	held := locktest.Taken(t, holder, "k")
	next := make(chan locking.Lease, 1)
	go func() {
		l, err := store.Acquire(t.Context(), "k")
		if err != nil {
			t.Errorf("the waiter: %v", err)
		}
		next <- l
	}()
	awaitWatch(t, store)
	proxy.Down()
	locktest.Released(t, holder, held)
	answer, err := client.Put(t.Context(), g.prefix, "")
	if err == nil {
		_, err = client.Compact(t.Context(), answer.Header.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	proxy.Up(t)
	if l := <-next; l.Fence <= held.Fence || !isOf(inQueue(t, client, g.prefix, "k")[0], l) {
		t.Errorf("got %+v", l)
	}
}

// The same before the watch has started, after the read of the queue.
func TestAcquire_CompactionBeforeTheWatchMissesNoEvent(t *testing.T) {
	locktest.Slow(t, "an etcd of its own")
	t.Parallel()
	m := servertest.StartEtcd(t, 1)[0]
	g := at(t, m.Addr)
	far, w := g, newProxy(t, m.Addr)
	far.endpoints = []string{w.addr}
	holder, store, client := g.must(t, 20*time.Second), far.must(t, 20*time.Second), g.client(t)
	held := locktest.Taken(t, holder, "k")
	unblock := w.delayWatches()
	defer unblock()
	next := make(chan locking.Lease, 1)
	go func() {
		l, err := store.Acquire(t.Context(), "k")
		if err != nil {
			t.Errorf("the waiter: %v", err)
		}
		next <- l
	}()
	locktest.Eventually(t, "the watch is delayed", func() bool { return w.heldSoFar() == 1 })
	locktest.Released(t, holder, held)
	answer, err := client.Put(t.Context(), g.prefix, "")
	if err == nil {
		_, err = client.Compact(t.Context(), answer.Header.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	unblock()
	if l := <-next; l.Fence <= held.Fence {
		t.Errorf("got %+v", l)
	}
}
