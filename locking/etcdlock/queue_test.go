package etcdlock

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
	"shop/locking/locktest"
)

// Of many waiters in one process, one is in etcd. They are served in order of arrival.
func TestAcquire_OneWaiterOfAProcessIsInEtcd(t *testing.T) {
	t.Parallel()
	g := shared(t)
	holder, store, client := g.must(t, 20*time.Second), g.must(t, 20*time.Second), g.client(t)
	held := locktest.Taken(t, holder, "k")
	const waiters = 10
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	for i := range waiters {
		all.Go(func() {
			l, err := store.Acquire(t.Context(), "k")
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if n := len(inQueue(t, client, g.prefix, "k")); n != 1 {
				t.Errorf("%d waiters are in etcd's queue, want 1", n)
			}
			if err := store.Release(t.Context(), l); err != nil {
				t.Error(err)
			}
		})
		locktest.Eventually(t, "the next one waits", func() bool { return store.queue.Len("k") == i+1 })
	}
	locktest.Eventually(t, "one is in etcd", func() bool { return waiting(t, client, g.prefix, "k") == 1 })
	locktest.Released(t, holder, held)
	all.Wait()
	if !slices.IsSorted(order) || len(order) != waiters {
		t.Errorf("served in the order %v", order)
	}
	if n := store.queue.Len("k"); n != 0 {
		t.Errorf("%d tickets are left in the queue of the process", n)
	}
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
	locktest.Eventually(t, "the busy process waits", func() bool { return busy.queue.Len("k") == 11 })
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
	g := at(t, locktest.StartEtcd(t, 1)[0].Addr) // used by this test alone
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

// A request whose turn in the process comes at the end of its ctx is busy: it has waited
// for other holders, not for etcd.
func TestAcquire_TurnThatComesTooLateIsBusy(t *testing.T) {
	t.Parallel()
	g := shared(t)
	locktest.Taken(t, g.must(t, 20*time.Second), "k")
	slow := newProxy(t, g.endpoints[0])
	g.endpoints = []string{slow.addr}
	store := g.must(t, 20*time.Second)
	acquire := func() (leave func(), end <-chan error) {
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := store.Acquire(ctx, "k")
			failed <- err
		}()
		return cancel, failed
	}
	leaveFirst, first := acquire()
	locktest.Eventually(t, "the first has its answer, and watches", func() bool { return slow.streamsSoFar() == 1 })
	leaveSecond, second := acquire()
	locktest.Eventually(t, "the second is in the queue", func() bool { return store.queue.Len("k") == 2 })
	defer slow.holdNext("/Txn")()
	leaveFirst()
	locktest.Eventually(t, "the second's turn has come", func() bool { return slow.heldSoFar() == 1 })
	leaveSecond()
	for _, end := range []<-chan error{first, second} {
		if err := <-end; !errors.Is(err, locking.ErrBusy) || !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want both %v and %v", err, locking.ErrBusy, context.Canceled)
		}
	}
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
	s := &Store{prefix: prefix}
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
	return strings.HasPrefix(l.Owner, name[strings.LastIndex(name, "/")+1:]+"-")
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
	locktest.Eventually(t, "the request watches its predecessor", func() bool { return s.client.Watcher.(*countingWatcher).begun.Load() > 0 })
}

// Acquire tries a transaction that reads no queue, which is faster, unless it was in vain the last time: a key for which
// another process waits costs no more requests.
func TestAcquire_RemembersForWhichKeysAnotherProcessWaits(t *testing.T) {
	t.Parallel()
	store, w, other, g := behindProxy(t, 20*time.Second)
	client := g.client(t)
	for round, want := range []int{2, 1} {
		held := locktest.Taken(t, other, "k")
		unblock := w.delayWatches() // no read after the first
		before := w.txnsSoFar()
		ours := waits(t, store, t.Context(), 0, "k")
		locktest.Eventually(t, "the request waits in etcd", func() bool { return waiting(t, client, g.prefix, "k") == 1 })
		if n := w.txnsSoFar() - before; n != want {
			t.Errorf("round %d: %d transactions before it waited, want %d", round, n, want)
		}
		unblock()
		locktest.Released(t, other, held)
		lease, err := (<-ours).Pair()
		if err != nil {
			t.Fatal(err)
		}
		locktest.Released(t, store, lease)
	}
	if !store.hadRivals([]string{"free", "k"}) || store.hadRivals([]string{"free"}) {
		t.Error("another process waited for k, and for no other key")
	}
	before := w.txnsSoFar()
	lease, err := store.Acquire(t.Context(), "k")
	if n := w.txnsSoFar() - before; err != nil || n != 1 || store.hadRivals([]string{"k"}) {
		t.Fatalf("no other process waits for k: %v, %d transactions, rivals: %v", err, n, store.rivals)
	}
	locktest.Released(t, store, lease)
	for i := range rivalsMax + 2 {
		store.setRivals([]string{strconv.Itoa(i)}, true)
	}
	if n := len(store.rivals); n > rivalsMax+1 {
		t.Errorf("%d keys are remembered", n)
	}
}
