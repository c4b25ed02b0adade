// SPDX-License-Identifier: MIT

package etcdfault

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/loadtest/fault"
	"shop/locking/locktest"
)

func TestQueued_CountsRequestedLocksAndEndedLeases(t *testing.T) {
	client, prefix := shared(t)
	watched, err := WatchQueues(t.Context(), client, prefix)
	if err != nil {
		t.Fatal(err)
	}
	lost, kept, other := open(t, client, prefix, 6*time.Second), open(t, client, prefix, 6*time.Second), open(t, client, prefix+"x", 6*time.Second)
	if _, err := lost.TryAcquire(t.Context(), "a", "b"); err != nil {
		t.Fatal(err)
	}
	if revoked, err := Evict(t.Context(), client, prefix, "a"); err != nil || !revoked {
		t.Fatal(revoked, err)
	}
	watched.await(t, 2) // a watch reports a put a moment later
	locktest.Eventually(t, "the end of the lease is counted", func() bool { return watched.lost() == 1 })
	between := time.Now()
	if _, err := kept.TryAcquire(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if _, err := other.TryAcquire(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	single, err := client.Grant(t.Context(), 6) // a lock with its own lease, which ends with the lock
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), prefix+"/leaseid/d", "", clientv3.WithLease(single.ID)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Revoke(t.Context(), single.ID); err != nil {
		t.Fatal(err)
	}
	watched.await(t, 4)
	seen, err := watched.Stop(t.Context(), between)
	if want := (Seen{All: 4, After: 2, Ended: 1}); err != nil || seen != want {
		t.Errorf("%+v (%v), want %+v", seen, err, want)
	}
}

// A release is no loss, and neither is a waiter that leaves its queue, whose lease ends.
func TestQueued_CountsNoReleaseAndNoWaiter(t *testing.T) {
	client, prefix := shared(t)
	watched, err := WatchQueues(t.Context(), client, prefix)
	if err != nil {
		t.Fatal(err)
	}
	holder, waiter := open(t, client, prefix, 6*time.Second), open(t, client, prefix, 6*time.Second)
	held := locktest.Taken(t, holder, "a")
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := waiter.Acquire(ctx, "a", "b")
		left <- err
	}()
	watched.await(t, 3)
	cancel()
	if err := <-left; err == nil {
		t.Error("granted")
	}
	locktest.Eventually(t, "the waiter is gone", func() bool {
		names, err := client.Get(t.Context(), prefix+"/1:b/", clientv3.WithPrefix())
		return err == nil && len(names.Kvs) == 0
	})
	locktest.Released(t, holder, held)
	locktest.Eventually(t, "the queues are empty", func() bool {
		watched.mu.Lock()
		defer watched.mu.Unlock()
		return len(watched.queues[prefix+"/1:a"]) == 0
	})
	if seen, err := watched.Stop(t.Context(), time.Now()); err != nil || seen != (Seen{All: 3}) {
		t.Errorf("%+v, %v, want three requests and no loss", seen, err)
	}
}

// etcd says 0 of a lease that has less than a second left.
func TestQueued_CountsNoReleaseInTheLastSecondOfALease(t *testing.T) {
	client, prefix := shared(t)
	watched, err := WatchQueues(t.Context(), client, prefix)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := client.Grant(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	name := prefix + "/1:a/1"
	if _, err := client.Put(t.Context(), name, "", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	locktest.Eventually(t, "less than a second is left", func() bool {
		left, err := client.TimeToLive(t.Context(), lease.ID)
		return err == nil && left.TTL == 0
	})
	watched.await(t, 1)
	if _, err := client.Delete(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	locktest.Eventually(t, "the queue is empty", func() bool {
		watched.mu.Lock()
		defer watched.mu.Unlock()
		return len(watched.queues[prefix+"/1:a"]) == 0
	})
	locktest.Eventually(t, "the lease has ended", func() bool {
		left, err := client.TimeToLive(t.Context(), lease.ID)
		return err == nil && left.TTL < 0
	})
	if seen, err := watched.Stop(t.Context(), time.Now()); err != nil || seen != (Seen{All: 1}) {
		t.Errorf("%+v, %v, want one request and no loss", seen, err)
	}
}

func (q *Queued) lost() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ended
}

// A lock that counts its own events but never calls etcd puts no key.
func TestQueued_WithoutARequestSeesNothing(t *testing.T) {
	client, prefix := shared(t)
	watched, err := WatchQueues(t.Context(), client, prefix)
	if err != nil {
		t.Fatal(err)
	}
	if seen, err := watched.Stop(t.Context(), time.Now()); err != nil || seen != (Seen{}) {
		t.Errorf("%+v, %v", seen, err)
	}
}

// await waits until n puts have been seen.
func (q *Queued) await(t *testing.T, n int) {
	t.Helper()
	seen := func() int {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.moments)
	}
	for seen() < n {
		if !fault.Wait(t.Context(), time.Millisecond) {
			t.Fatalf("%d seen, want %d", seen(), n)
		}
	}
}
