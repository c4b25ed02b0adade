// SPDX-License-Identifier: MIT

package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// leaderOf returns the member that reports itself as the leader.
func leaderOf(t *testing.T, client *clientv3.Client, members []*servertest.Server) *servertest.Server {
	t.Helper()
	var leader *servertest.Server
	locktest.Eventually(t, "a leader", func() bool {
		for _, m := range members {
			if !m.Up() {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			s, err := client.Status(ctx, m.Addr)
			cancel()
			if err == nil && s.Leader != 0 && s.Leader == s.Header.MemberId {
				leader = m
				return true
			}
		}
		return false
	})
	return leader
}

// holdUntil holds k in a Do until stop is closed. ended receives the result of Do.
func holdUntil(t *testing.T, store *Store, stop <-chan struct{}) (held locking.Lease, ended <-chan error) {
	t.Helper()
	granted, result := make(chan locking.Lease, 1), make(chan error, 1)
	go func() {
		result <- locking.Do(context.WithoutCancel(t.Context()), store, locking.Options{}, []string{"k"}, func(ctx context.Context, l locking.Lease) error {
			granted <- l
			select {
			case <-stop:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	return <-granted, result
}

// acquireRepeatedly acquires and releases another key. During an election that may
// fail, but a granted fence is always greater than the one before.
func acquireRepeatedly(t *testing.T, store *Store, above locking.Fence) (last locking.Fence) {
	t.Helper()
	last = above
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), store.locks.ttl)
		l, err := locking.Acquire(ctx, store, locking.Options{}, "free")
		cancel()
		if err != nil {
			continue
		}
		if l.Fence <= last {
			t.Errorf("fence %d after %d", l.Fence, last)
		}
		last = l.Fence
		_ = store.Release(t.Context(), l)
	}
	if last == above {
		t.Error("nothing was granted under the new leader")
	}
	return last
}

// The leader dies while one Store holds the key, one waits for it, and a third acquires
// another key. The holder keeps its Lease, the waiter its position, and no other Store is
// granted the key.
func TestCluster_LeaderChangeThenLossOfQuorum(t *testing.T) {
	locktest.Slow(t, "three etcd")
	t.Parallel()
	members := servertest.StartEtcd(t, 3)
	g := at(t, members[0].Addr, members[1].Addr, members[2].Addr)
	const ttl = 10 * time.Second
	holder, waiter, other, client := g.must(t, ttl), g.must(t, ttl), g.must(t, ttl), g.client(t)
	stop := make(chan struct{})
	first, ended := holdUntil(t, holder, stop)
	next := make(chan locking.Lease, 1)
	go func() {
		l, err := waiter.Acquire(context.WithoutCancel(t.Context()), "k")
		if err != nil {
			t.Errorf("the waiter: %v", err)
		}
		next <- l
	}()
	awaitWatch(t, waiter)
	place := inQueue(t, client, g.prefix, "k")[1]

	old := leaderOf(t, client, members)
	old.Kill()
	if now := leaderOf(t, client, members); now == old {
		t.Fatal("the killed member is still the leader")
	}
	fence := acquireRepeatedly(t, other, first.Fence)
	locktest.WantHeld(t, other, "k")
	close(stop)
	if err := <-ended; err != nil {
		t.Errorf("the holder: %v", err)
	}
	if second := <-next; second.Fence <= first.Fence || inQueue(t, client, g.prefix, "k")[0] != place {
		t.Errorf("the waiter got %+v, from %s", second, place)
	}
	loseQuorum(t, other, leaderOf(t, client, members), old, fence)
}

// loseQuorum checks that with one member of three a request fails, and that with
// two the Store grants keys again.
func loseQuorum(t *testing.T, store *Store, second, first *servertest.Server, fence locking.Fence) {
	t.Helper()
	second.Kill()
	asked := time.Now()
	if _, err := store.TryAcquire(t.Context(), "quorum"); err == nil || errors.Is(err, locking.ErrBusy) || ranSince(asked) > store.locks.ttl {
		t.Errorf("without a quorum: got %v after %v", err, ranSince(asked))
	}
	first.Start()
	locktest.Eventually(t, "a lock is granted", func() bool {
		l, err := store.TryAcquire(t.Context(), "quorum")
		return err == nil && store.Release(t.Context(), l) == nil && l.Fence > fence
	})
}

// T9: a holder dies, and the leader with it. The new leader gives every lease its
// TTL again, so the keys are free within two TTLs and the election.
func TestCluster_OrphanIsFreeAfterTheLeaderChange(t *testing.T) {
	locktest.Slow(t, "three etcd")
	t.Parallel()
	members := servertest.StartEtcd(t, 3)
	g := at(t, members[0].Addr, members[1].Addr, members[2].Addr)
	client := g.client(t)
	store, leader := g.must(t, 10*time.Second), leaderOf(t, client, members)
	lease, err := client.Grant(t.Context(), int64(minTTL/time.Second)) // of a process that is dead
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), store.locks.queueOf("k")+"dead", "", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	leader.Kill()
	killed := time.Now()
	locktest.Eventually(t, "the key is free", func() bool {
		_, err := store.Acquire(t.Context(), "k")
		return err == nil
	})
	const election = 3 * time.Second
	if took := ranSince(killed); took > 2*minTTL+election+2*time.Second || time.Since(killed) < minTTL {
		t.Errorf("free after %v", took)
	}
	t.Logf("free %v after the leader's death, TTL %v", time.Since(killed).Round(100*time.Millisecond), minTTL)
}
