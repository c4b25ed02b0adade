// SPDX-License-Identifier: MIT

package etcdlock

import (
	"context"
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
// lease_test.go.)

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
	if _, err := store.Renew(t.Context(), first); err != nil { // a round trip later
		t.Error(err)
	}
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

// leaseOf returns the lease of etcd that a name in a queue has.
func leaseOf(t testing.TB, client *clientv3.Client, name string) clientv3.LeaseID {
	t.Helper()
	answer, err := client.Get(context.WithoutCancel(t.Context()), name)
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatalf("%s: %v, %v", name, answer, err)
	}
	return clientv3.LeaseID(answer.Kvs[0].Lease)
}

// T7: the lease of a waiter ends. The waiter is not granted the key
// without a place: it enters the queue again under a new lease, and is granted it.
func TestAcquire_LeaseThatDiesWhileWaitingIsNotGranted(t *testing.T) {
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
	if _, err := client.Revoke(t.Context(), leaseOf(t, client, before[1])); err != nil {
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
		store := g.must(t, ttl)
		locktest.Taken(t, store, ttl.String())
		answer, err := client.TimeToLive(t.Context(), leaseOf(t, client, inQueue(t, client, g.prefix, ttl.String())[0]))
		if err != nil || time.Duration(answer.GrantedTTL)*time.Second != ttl {
			t.Errorf("TTL %v: etcd granted %+v, %v", ttl, answer, err)
		}
	}
	for _, ttl := range []time.Duration{time.Second, 1500 * time.Millisecond, 2500 * time.Millisecond, time.Millisecond, 0, -time.Second, 1 << 62} {
		if _, err := g.store(t, ttl); !errors.Is(err, locking.ErrTTL) && ttl != 1<<62 || err == nil {
			t.Errorf("TTL %v: got %v, want ErrTTL", ttl, err)
		}
	}
}
