// SPDX-License-Identifier: MIT

package redislock

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/redislock/redistest"
)

// The tests share a Cluster of one node, which takes two seconds to start.
func TestCluster(t *testing.T) {
	locktest.Slow(t, "a Redis Cluster")
	t.Parallel()
	of, _ := redistest.OneNode(t)
	g := target{Target: of}
	t.Run("SeveralKeysWithoutHashTagAreAlwaysRefused", g.severalKeys)
	t.Run("CrossSlotIsErrSeveralKeys", g.crossSlot)
	t.Run("ABrokenReleaseIsNotSentAgain", g.brokenRelease)
	t.Run("WithoutHashTagEachLeaseHasOneKey", func(t *testing.T) {
		p := promises
		p.MultiKey = false
		locktest.Run(t, g.open, p, "Multi/Refused", "Exclusion/SeveralStores", "Fence/GrowsOverGrants")
	})
}

// In a Cluster of three nodes the keys of a hash tag are on one of them. Messages reach the
// waiters on whichever node they are subscribed.
func TestCluster_ThreeNodes(t *testing.T) { // not beside other tests, which have servers and time limits of their own
	locktest.Slow(t, "a Redis Cluster")
	g, _ := redistest.ThreeNodes(t)
	locktest.Run(t, target{Target: g}.open, promises)
}

// severalKeys checks that several keys need a hash tag wherever they are: two keys of
// one bucket are refused as well.
func (g target) severalKeys(t *testing.T) {
	store := storeOf(t, g.Client(t, tuned(time.Minute)), time.Minute, Options{})
	together := ""
	for i := 0; together == ""; i++ {
		if k := time.Duration(i).String(); store.Scope(k) == store.Scope("a") {
			together = k
		}
	}
	for _, other := range []string{"b", together} {
		if lease, err := store.TryAcquire(t.Context(), "a", other); !errors.Is(err, locking.ErrSeveralKeys) {
			t.Errorf("a and %q: got %+v and %v, want ErrSeveralKeys", other, lease, err)
		}
	}
	locktest.Taken(t, store, "a", "a") // a duplicate counts once
}

// crossSlot checks that a wrapped client, which New cannot recognize as one of a
// Cluster, gets locking.ErrSeveralKeys from the server's answer.
func (g target) crossSlot(t *testing.T) {
	hidden := struct{ redis.UniversalClient }{g.Client(t, tuned(time.Minute))}
	store := storeOf(t, hidden, time.Minute, Options{})
	if _, err := store.TryAcquire(t.Context(), "a", "b"); !errors.Is(err, locking.ErrSeveralKeys) || errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("got %v, want ErrSeveralKeys", err)
	}
}

// brokenRelease checks that a release whose connection breaks is not sent a second time by the client. The second
// would find nothing, and the result would be ErrLost. The control is the script without once.
func (g target) brokenRelease(t *testing.T) {
	const ttl = 10 * time.Second
	g.Proxy = redistest.Proxy(t, redistest.Host(t, g.URL))
	client := g.Client(t, tuned(ttl))
	store := storeOf(t, client, ttl, Options{Prefix: redistest.Prefix(t, g.URL)})
	if err := store.Release(t.Context(), locktest.Taken(t, store, "a")); err != nil { // so that the node has the scripts
		t.Fatal(err)
	}
	g.Proxy.Reset(true)
	broken := func(key string) locking.Lease {
		lease := locktest.Taken(t, store, key)
		g.Proxy.Lose(1)
		return lease
	}

	lease := broken("b")
	locks, _ := store.names(lease.Keys)
	held, err := store.scripts.release.Run(t.Context(), client, append(locks, store.marks(lease.Keys)...), value(lease), lease.Owner, store.channel(), 1).Int64()
	if held != 0 || err != nil || g.Proxy.Lost() != 1 {
		t.Errorf("without once: %d still held, %v, %d replies lost; the client no longer repeats requests", held, err, g.Proxy.Lost())
	}

	guard := NewGuard("return redis.call('INCR', KEYS[1])")
	name := store.Prefix + "{" + redistest.Tag + "}n"
	if _, err := guard.Run(t.Context(), client, name+":fence", 1, []string{name}); err != nil { // so that the node has it
		t.Fatal(err)
	}
	g.Proxy.Lose(1)
	_, err = guard.Run(t.Context(), client, name+":fence", 2, []string{name})
	if n, got := client.Get(t.Context(), name).Int(); !errors.Is(err, locking.ErrOutcomeUnknown) || n != 2 || got != nil {
		t.Errorf("guard: %v, and the script ran %d times (%v), want an unknown outcome and 2", err, n, got)
	}

	// Last: it is repeated in the background.
	if err := store.Release(t.Context(), broken("c")); !errors.Is(err, locking.ErrOutcomeUnknown) || g.Proxy.Lost() != 3 {
		t.Errorf("got %v, want an unknown outcome; %d replies lost", err, g.Proxy.Lost())
	}
}
