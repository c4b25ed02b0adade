// SPDX-License-Identifier: MIT

package etcdlock

import (
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// wantForeign waits until etcd answers, and checks that TryAcquire and Acquire return
// ErrEpoch and that the queue is empty. If the cluster's id has changed, only the answer
// to a waiter shows it, and the waiter has to be removed.
func wantForeign(t *testing.T, s *Store, client *clientv3.Client) {
	t.Helper()
	locktest.Eventually(t, "etcd refuses the Store", func() bool {
		l, err := s.TryAcquire(t.Context(), "a", "b")
		if err == nil {
			t.Fatalf("granted %+v, of an epoch that is not the Store's", l)
		}
		return errors.Is(err, ErrEpoch)
	})
	if l, err := s.Acquire(t.Context(), "a"); !errors.Is(err, ErrEpoch) || errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("got %+v, %v, want ErrEpoch", l, err)
	}
	locktest.Eventually(t, "the queue is empty", func() bool { return len(inQueue(t, client, s.locks.prefix, "a")) == 0 })
}

// holderAndWaiter makes a Lease and a waiter of the present epoch, which is about to change.
func holderAndWaiter(t *testing.T, g target, ttl time.Duration) (s *Store, held locking.Lease, waited <-chan error) {
	t.Helper()
	s = g.must(t, ttl)
	held = locktest.Taken(t, s, "k")
	other, result := g.must(t, ttl), make(chan error, 1)
	go func() {
		l, err := other.Acquire(t.Context(), "k")
		if err == nil {
			t.Errorf("granted %+v, of an epoch that is not the Store's", l)
		}
		result <- err
	}()
	awaitWatch(t, other)
	return s, held, result
}

// valueIn returns the epoch's value in etcd; false: none.
func valueIn(t *testing.T, client *clientv3.Client, prefix string) (string, bool) {
	t.Helper()
	answer, err := client.Get(t.Context(), epochKey(prefix))
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Kvs) == 0 {
		return "", false
	}
	return string(answer.Kvs[0].Value), true
}

func TestEpoch_IsOneForAllStoresAndOutlivesARestart(t *testing.T) {
	locktest.Slow(t, "a restart of etcd")
	t.Parallel()
	m := servertest.StartEtcd(t, 1)[0]
	g, elsewhere := at(t, m.Addr), at(t, m.Addr)
	first, second, third := g.must(t, 10*time.Second), g.must(t, 10*time.Second), elsewhere.must(t, 10*time.Second)
	if first.Epoch() != second.Epoch() || first.Epoch() == third.Epoch() {
		t.Errorf("of one prefix %s and %s, of another %s", first.Epoch(), second.Epoch(), third.Epoch())
	}
	before := locktest.Taken(t, first, "k")
	locktest.Released(t, first, before)
	m.Restart()
	if now := g.must(t, 10*time.Second).Epoch(); now != first.Epoch() {
		t.Errorf("epoch %s after a restart, was %s", now, first.Epoch())
	}
	locktest.Eventually(t, "the Store grants greater fences", func() bool {
		l, err := first.TryAcquire(t.Context(), "k")
		if errors.Is(err, ErrEpoch) {
			t.Fatal(err)
		}
		return err == nil && l.Fence > before.Fence
	})
}

// An etcd that is wiped and started with the same flags has the same cluster id.
func TestEpoch_WipedEtcdGrantsNothingUntilAStoreIsOpened(t *testing.T) {
	locktest.Slow(t, "an etcd of its own")
	t.Parallel()
	m := servertest.StartEtcd(t, 1)[0]
	g := at(t, m.Addr)
	store, held, waited := holderAndWaiter(t, g, 10*time.Second)
	m.Kill()
	m.Wipe()
	m.Start()
	client := g.client(t)
	if err := <-waited; !errors.Is(err, ErrEpoch) {
		t.Errorf("the waiter: got %v, want ErrEpoch", err)
	}
	if _, err := store.Renew(t.Context(), held); !errors.Is(err, locking.ErrLost) {
		t.Errorf("the holder: got %v, want ErrLost", err)
	}
	wantForeign(t, store, client)
	if value, there := valueIn(t, client, g.prefix); there {
		t.Errorf("a running Store has created epoch %s", value)
	}
	next := g.must(t, 10*time.Second)
	cluster, _, _ := strings.Cut(strings.TrimPrefix(next.Epoch(), "etcd-"), "-")
	if next.Epoch() == store.Epoch() || !strings.Contains(store.Epoch(), cluster) {
		t.Errorf("epoch %s, then %s, want another one of the same cluster", store.Epoch(), next.Epoch())
	}
	locktest.Released(t, next, locktest.Taken(t, next, "a", "b"))
	wantForeign(t, store, client)
}

// A snapshot that is restored as a new cluster contains the value.
func TestEpoch_AnotherClusterWithTheSameValueGrantsNothing(t *testing.T) {
	locktest.Slow(t, "an etcd of its own")
	t.Parallel()
	m := servertest.StartEtcd(t, 1)[0]
	g := at(t, m.Addr)
	store, client := g.must(t, 3*time.Second), g.client(t)
	value, _ := valueIn(t, client, g.prefix)
	m.Kill()
	m.Wipe()
	m.Flags = []string{"--initial-cluster-token", "restored"} // the cluster's id depends on it
	m.Start()
	if _, err := client.Put(t.Context(), epochKey(g.prefix), value); err != nil {
		t.Fatal(err)
	}
	wantForeign(t, store, client)
	next := g.must(t, 3*time.Second)
	if next.Epoch() == store.Epoch() {
		t.Errorf("the epoch is still %s", next.Epoch())
	}
	locktest.Released(t, next, locktest.Taken(t, next, "a", "b"))
	wantForeign(t, store, client)
}

// No Store can detect an etcd that was restored in place: the operator calls NewEpoch.
func TestNewEpoch_EndsAllWorkOfTheOldOne(t *testing.T) {
	t.Parallel()
	g := shared(t)
	client := g.client(t)
	store, held, waited := holderAndWaiter(t, g, 20*time.Second)
	was, now, err := NewEpoch(t.Context(), client, g.prefix)
	if err != nil || was != store.Epoch() || now == was {
		t.Fatalf("was %s, now %s, %v; the Store has %s", was, now, err, store.Epoch())
	}
	wantForeign(t, store, client)
	if _, err := store.Renew(t.Context(), held); !errors.Is(err, locking.ErrLost) {
		t.Errorf("the holder: got %v, want ErrLost", err)
	}
	if err := <-waited; !errors.Is(err, ErrEpoch) {
		t.Errorf("the waiter: got %v, want ErrEpoch", err)
	}
	next := g.must(t, 20*time.Second)
	if next.Epoch() != now {
		t.Errorf("epoch %s, want %s", next.Epoch(), now)
	}
	l, err := next.Acquire(t.Context(), "k") // the old holder and waiter are removed in the background
	if err != nil {
		t.Fatal(err)
	}
	locktest.Released(t, next, l)
}

func TestNewEpoch_WhereThereIsNoneIsTheFirst(t *testing.T) {
	t.Parallel()
	g := shared(t)
	was, now, err := NewEpoch(t.Context(), g.client(t), g.prefix)
	if epoch := g.must(t, minTTL).Epoch(); err != nil || was != "" || epoch != now {
		t.Errorf("was %q, now %s, %v; a Store has %s", was, now, err, epoch)
	}
}

// The comparison is part of the transaction: one to acquire, one to release.
func TestEpoch_CostsNoRequest(t *testing.T) {
	t.Parallel()
	store, w, _, _ := behindProxy(t, 20*time.Second)
	before := w.txnsSoFar()
	locktest.Released(t, store, locktest.Taken(t, store, "a", "b"))
	if n := w.txnsSoFar() - before; n != 2 {
		t.Errorf("%d transactions, want 2", n)
	}
}
