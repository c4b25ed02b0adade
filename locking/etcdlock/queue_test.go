// SPDX-License-Identifier: MIT

package etcdlock

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// Of many waiters in one process, one is in etcd.
func TestAcquire_OneWaiterOfAProcessIsInEtcd(t *testing.T) {
	t.Parallel()
	g := shared(t)
	holder, store, client := g.must(t, 20*time.Second), g.must(t, 20*time.Second), g.client(t)
	held := locktest.Taken(t, holder, "k")
	const waiters = 10
	var all sync.WaitGroup
	for i := range waiters {
		all.Go(func() {
			l, err := store.Acquire(t.Context(), "k")
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			if n := len(inQueue(t, client, g.prefix, "k")); n != 1 {
				t.Errorf("%d waiters are in etcd's queue, want 1", n)
			}
			if err := store.Release(t.Context(), l); err != nil {
				t.Error(err)
			}
		})
	}
	locktest.Eventually(t, "one is in etcd", func() bool { return waiting(t, client, g.prefix, "k") == 1 })
	locktest.Released(t, holder, held)
	all.Wait()
}

// Each grant takes a new waiter in etcd, so a process with many waiters has one turn
// before a process with a single waiter, not all of them.
func TestAcquire_ProcessWithManyWaitersDoesNotStarveOthers(t *testing.T) {
	t.Parallel()
	g := shared(t)
	busy, single, client := g.must(t, 20*time.Second), g.must(t, 20*time.Second), g.client(t)
	held := locktest.Taken(t, busy, "k")
	var mu sync.Mutex
	var order []string
	var all sync.WaitGroup
	enter := func(name string, s *Store) {
		all.Go(func() {
			l, err := s.Acquire(t.Context(), "k")
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			mu.Lock()
			order = append(order, name)
			mu.Unlock()
			if err := s.Release(t.Context(), l); err != nil {
				t.Error(err)
			}
		})
	}
	for range 10 {
		enter("busy", busy)
	}
	enter("single", single)
	locktest.Eventually(t, "the single one waits", func() bool { return waiting(t, client, g.prefix, "k") == 1 })
	locktest.Released(t, busy, held)
	all.Wait()
	if at := slices.Index(order, "single"); at > 1 {
		t.Errorf("%d of the busy process were granted before the single waiter: %v", at, order)
	}
}

// Waiters of many processes are queued, and a release wakes one of them.
func TestAcquire_ReleaseWakesOneWaiter(t *testing.T) {
	locktest.Slow(t, "an etcd of its own")
	t.Parallel()
	g := at(t, servertest.StartEtcd(t, 1)[0].Addr) // used by this test alone
	w, far := newProxy(t, g.endpoints[0]), g
	far.endpoints = []string{w.addr}
	holder, client := g.must(t, 20*time.Second), g.client(t)
	held := locktest.Taken(t, holder, "k")
	const waiters = 5
	got, unblock := make(chan locking.Lease), make(chan struct{})
	var all sync.WaitGroup
	for i := range waiters {
		store := far.must(t, 20*time.Second)
		all.Go(func() {
			l, err := store.Acquire(t.Context(), "k")
			if err != nil {
				t.Errorf("acquire: %v", err)
				return
			}
			got <- l
			<-unblock
			if err := store.Release(t.Context(), l); err != nil {
				t.Error(err)
			}
		})
		locktest.Eventually(t, "the next one waits", func() bool { return waiting(t, client, g.prefix, "k") == i+1 })
	}
	before, quiet := 0, 0
	locktest.Eventually(t, "all waiters watch, and no more requests are sent", func() bool {
		n := w.txnsSoFar()
		if quiet++; n != before {
			before, quiet = n, 0
		}
		return quiet > 50
	})
	locktest.Released(t, holder, held)
	<-got
	locktest.Released(t, holder, locktest.Taken(t, holder, "another")) // time for requests of the other waiters
	if n := w.txnsSoFar() - before; n > 1 {
		t.Errorf("a release woke %d waiters, want 1", n)
	}
	close(unblock)
	for range waiters - 1 {
		<-got
	}
	all.Wait()
}

// waiting counts the waiters in etcd's queue for key behind the holder.
func waiting(t testing.TB, client *clientv3.Client, prefix, key string) int {
	t.Helper()
	return max(0, len(inQueue(t, client, prefix, key))-1)
}

// inQueue are the names in etcd's queue for key.
func inQueue(t testing.TB, client *clientv3.Client, prefix, key string) (names []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := &locks{prefix: prefix}
	answer, err := client.Get(ctx, s.queueOf(key), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range answer.Kvs {
		names = append(names, string(kv.Key))
	}
	return names
}

// isOf reports whether a name in a queue is that of a Lease.
func isOf(name string, l locking.Lease) bool {
	return strings.Contains(l.Owner, "/"+name[strings.LastIndex(name, "/")+1:]+"-")
}

// countingWatcher counts the watches that a client has begun.
type countingWatcher struct {
	clientv3.Watcher
	begun atomic.Int64
}

func (w *countingWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	w.begun.Add(1)
	return w.Watcher.Watch(ctx, key, opts...)
}

// awaitWatch waits until a request of a Store watches its predecessor. A waiter in etcd is not
// enough: the request may not have its answer yet, and then the end of the server, of the
// connection or of ctx leaves its outcome unknown.
func awaitWatch(t testing.TB, s *Store) {
	t.Helper()
	locktest.Eventually(t, "the request watches its predecessor", func() bool { return s.locks.client.Watcher.(*countingWatcher).begun.Load() > 0 })
}
