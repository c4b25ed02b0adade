package etcdlock

import (
	"errors"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
	"shop/locking/locktest"
)

// The known traps of etcd's locks, T1 and T4 to T8, one test each. (T5 and T6 are in
// undo_test.go; T9, leader change, in cluster_test.go; T16, late keep-alives, in
// session_test.go.)

// T1, T4: two goroutines share one session. etcd's mutex grants the second goroutine the
// lock too, under the first one's name and fence.
func TestAcquire_GoroutinesOfOneStoreExcludeEachOther(t *testing.T) {
	t.Parallel()
	store := shared(t).must(t, 10*time.Second)
	first := locktest.Taken(t, store, "k")
	locktest.WantHeld(t, store, "k")
	waited := make(chan locking.Lease)
	go func() {
		second, err := store.Acquire(t.Context(), "k")
		if err != nil {
			t.Errorf("acquire: %v", err)
		}
		waited <- second
	}()
	locktest.Eventually(t, "the second is in the queue", func() bool { return store.queue.Len("k") == 2 })
	select {
	case second := <-waited:
		t.Fatalf("%+v was granted while %+v was held", second, first)
	default:
	}
	locktest.Released(t, store, first)
	if second := <-waited; second.Fence <= first.Fence || second.Owner == first.Owner {
		t.Errorf("first %+v, second %+v", first, second)
	}
}

// id returns the lease id of the store's present session, 0 if it has none.
func id(s *Store) clientv3.LeaseID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == nil {
		return 0
	}
	return s.session.id
}

// T7: the session dies while a request waits. The request is not granted the key
// without a waiter: it enters the queue again under a new session, and is granted it.
func TestAcquire_SessionThatDiesWhileWaitingIsNotGranted(t *testing.T) {
	t.Parallel()
	g := shared(t)
	holder, store, client := g.must(t, 10*time.Second), g.must(t, 3*time.Second), g.client(t)
	held := locktest.Taken(t, holder, "k")
	var granted locking.Lease
	var wait sync.WaitGroup
	wait.Go(func() {
		var err error
		if granted, err = store.Acquire(t.Context(), "k"); err != nil {
			t.Errorf("acquire: %v", err)
		}
	})
	awaitWatch(t, store)
	before := inQueue(t, client, g.prefix, "k")
	if _, err := client.Revoke(t.Context(), id(store)); err != nil {
		t.Fatal(err)
	}
	locktest.Eventually(t, "it waits again", func() bool {
		now := inQueue(t, client, g.prefix, "k")
		return len(now) == 2 && now[1] != before[1]
	})
	locktest.Released(t, holder, held)
	wait.Wait()
	if names := inQueue(t, client, g.prefix, "k"); len(names) != 1 || !isOf(names[0], granted) {
		t.Errorf("granted %+v; the queue holds %q", granted, names)
	}
	locktest.Released(t, store, granted)
}

// A request whose waiter is deleted in the same transaction as the holder's enters the
// queue again too.
func TestAcquire_WaiterDeletedTogetherWithTheHoldersIsNotGranted(t *testing.T) {
	t.Parallel()
	g := shared(t)
	holder, store, client := g.must(t, 10*time.Second), g.must(t, 10*time.Second), g.client(t)
	held := locktest.Taken(t, holder, "k")
	result := make(chan locking.Lease)
	go func() {
		l, err := store.Acquire(t.Context(), "k")
		if err != nil {
			t.Errorf("acquire: %v", err)
		}
		result <- l
	}()
	awaitWatch(t, store)
	names := inQueue(t, client, g.prefix, "k")
	if _, err := client.Txn(t.Context()).Then(clientv3.OpDelete(names[0]), clientv3.OpDelete(names[1])).Commit(); err != nil {
		t.Fatal(err)
	}
	granted := <-result
	if isOf(names[1], granted) || granted.Fence <= held.Fence {
		t.Errorf("granted %+v, whose waiter was deleted", granted)
	}
	if now := inQueue(t, client, g.prefix, "k"); len(now) != 1 || !isOf(now[0], granted) {
		t.Errorf("granted %+v; the queue holds %q", granted, now)
	}
}

// T8: etcd accepts whole seconds only, and silently raises a TTL below its minimum.
func TestNew_TTLIsExactlyWhatEtcdGrants(t *testing.T) {
	locktest.Slow(t, "the end of a lease of etcd, several seconds")
	t.Parallel()
	g := shared(t)
	client := g.client(t)
	for _, ttl := range []time.Duration{minTTL, 7 * time.Second} {
		answer, err := client.TimeToLive(t.Context(), id(g.must(t, ttl)))
		if err != nil || time.Duration(answer.GrantedTTL)*time.Second != ttl {
			t.Errorf("TTL %v: etcd granted %+v, %v", ttl, answer, err)
		}
	}
	for _, ttl := range []time.Duration{time.Second, 1500 * time.Millisecond, 2500 * time.Millisecond, time.Millisecond, 0, -time.Second, 1 << 62} {
		if _, err := g.store(t, ttl); !errors.Is(err, ErrTTL) && ttl != 1<<62 || err == nil {
			t.Errorf("TTL %v: got %v, want ErrTTL", ttl, err)
		}
	}
}
