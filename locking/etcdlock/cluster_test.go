package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

// leaderOf finds the member that leads, as the client's endpoints see it.
func leaderOf(t *testing.T, client *clientv3.Client, members []*member) *member {
	t.Helper()
	var leader *member
	waitFor(t, "a leader", func() bool {
		for _, m := range members {
			if m.cmd == nil {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			s, err := client.Status(ctx, m.client)
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

// The leader dies while one holds, one waits, and many come and go. The holder
// keeps its Lease, the waiter its place; nobody is granted what is held; and
// without a quorum nothing is granted at all, soon, until it is back.
func TestCluster_LeaderChangeAndLossOfQuorum(t *testing.T) {
	t.Parallel()
	members := startCluster(t, 3)
	g := at(t, members[0].client, members[1].client, members[2].client)
	const ttl = 10 * time.Second
	holder, waiter, other, client := g.must(t, ttl), g.must(t, ttl), g.must(t, ttl), g.client(t)
	session := id(holder)
	stop, released := make(chan struct{}), make(chan error, 1)
	held := make(chan locking.Lease, 1)
	go func() {
		released <- locking.Do(context.WithoutCancel(t.Context()), holder, locking.Options{}, []string{"k"}, func(ctx context.Context, l locking.Lease) error {
			held <- l
			select {
			case <-stop:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	first := <-held
	next := make(chan locking.Lease, 1)
	go func() {
		l, err := waiter.Acquire(context.WithoutCancel(t.Context()), "k")
		if err != nil {
			t.Errorf("the waiter: %v", err)
		}
		next <- l
	}()
	waitFor(t, "it waits", func() bool { return waiting(t, client, g.prefix, "k") == 1 })
	place := inQueue(t, client, g.prefix, "k")[1]

	old := leaderOf(t, client, members)
	old.kill()
	if now := leaderOf(t, client, members); now == old {
		t.Fatal("no election")
	}
	fence := first.Fence
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), ttl)
		l, err := locking.Acquire(ctx, other, locking.Options{}, "free")
		cancel()
		if err != nil {
			continue // during the election; it may end in an error, not in two holders
		}
		if l.Fence <= fence {
			t.Errorf("fence %d after %d", l.Fence, fence)
		}
		fence = l.Fence
		_ = other.Release(t.Context(), l)
	}
	if fence == first.Fence {
		t.Error("nothing was granted under the new leader")
	}
	wantBusy(t, other, "k")
	close(stop)
	if err := <-released; err != nil || id(holder) != session {
		t.Errorf("the holder: %v, session %x, was %x", err, id(holder), session)
	}
	second := <-next
	if second.Fence <= first.Fence || inQueue(t, client, g.prefix, "k")[0] != place {
		t.Errorf("the waiter got %+v, from %s", second, place)
	}

	leaderOf(t, client, members).kill() // one of three is left
	waitFor(t, "the loss is noticed", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := other.TryAcquire(ctx, "quorum")
		return err != nil
	})
	waitFor(t, "no session is left", func() bool { return id(other) == 0 })
	asked := time.Now()
	if _, err := other.TryAcquire(t.Context(), "quorum"); err == nil || errors.Is(err, locking.ErrBusy) || time.Since(asked) > time.Second {
		t.Errorf("without a quorum: got %v after %v", err, time.Since(asked))
	}
	old.start() // two of three
	waitFor(t, "service is back", func() bool {
		l, err := other.TryAcquire(t.Context(), "quorum")
		return err == nil && other.Release(t.Context(), l) == nil && l.Fence > fence
	})
}

// T9: a holder dies, and the leader with it. The new leader gives every lease its
// TTL again, so the keys are free within two TTLs and the election.
func TestCluster_OrphanIsFreeAfterTheLeaderChange(t *testing.T) {
	t.Parallel()
	members := startCluster(t, 3)
	g := at(t, members[0].client, members[1].client, members[2].client)
	client := g.client(t)
	lease, err := client.Grant(t.Context(), int64(minTTL/time.Second)) // of a process that is dead
	if err != nil {
		t.Fatal(err)
	}
	store := g.must(t, 10*time.Second)
	if _, err := client.Put(t.Context(), store.queue("k")+"dead", "", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	leaderOf(t, client, members).kill()
	killed := time.Now()
	var got locking.Lease
	waitFor(t, "the key is free", func() bool {
		got, err = store.Acquire(t.Context(), "k")
		return err == nil
	})
	const election = 3 * time.Second
	if took := time.Since(killed); took > 2*minTTL+election+2*time.Second || took < minTTL {
		t.Errorf("free after %v", took)
	}
	t.Logf("free %v after the leader's death, TTL %v", time.Since(killed).Round(100*time.Millisecond), minTTL)
	_ = got
}
