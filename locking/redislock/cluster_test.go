package redislock

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
)

// startCluster starts a Cluster of n nodes, each with an equal part of the slots.
func startCluster(t testing.TB, n int) (nodes []*locktest.Server) {
	t.Helper()
	var first *redis.Client
	for i := range n {
		_, bus, _ := net.SplitHostPort(locktest.FreeAddr(t))
		s := locktest.Start(t, locktest.Redis(append([]string{"--cluster-enabled", "yes", "--cluster-port", bus}, locktest.Durable...)...))
		nodes = append(nodes, s)
		client := redis.NewClient(&redis.Options{Addr: s.Addr})
		defer client.Close()
		if i == 0 {
			first = client
		}
		host, port, _ := net.SplitHostPort(s.Addr)
		if err := client.ClusterAddSlotsRange(t.Context(), 16384*i/n, 16384*(i+1)/n-1).Err(); err != nil {
			t.Fatal(err)
		}
		if err := first.Do(t.Context(), "CLUSTER", "MEET", host, port, bus).Err(); i > 0 && err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range nodes {
		client := redis.NewClient(&redis.Options{Addr: s.Addr})
		defer client.Close()
		locktest.Eventually(t, "the cluster", func() bool {
			info := client.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(n))
		})
	}
	return nodes
}

// startNode starts a Cluster of one node.
func startNode(t testing.TB) (target, *locktest.Server) {
	t.Helper()
	s := startCluster(t, 1)[0]
	return target{url: "redis://" + s.Addr, cluster: true, start: startNode}, s
}

// tag is the hash tag of the tests with several nodes.
const tag = "accounts"

// startNodes starts a Cluster of three nodes. The target, and the node, is the one that has the keys of tag.
func startNodes(t testing.TB) (target, *locktest.Server) {
	t.Helper()
	nodes := startCluster(t, 3)
	client := redis.NewClient(&redis.Options{Addr: nodes[0].Addr})
	defer client.Close()
	owner := 2
	for client.ClusterKeySlot(t.Context(), tag).Val() < int64(16384*owner/3) {
		owner--
	}
	s := nodes[owner]
	return target{url: "redis://" + s.Addr, cluster: true, options: Options{HashTag: tag}, start: startNodes}, s
}

// The tests share a Cluster of one node, which takes two seconds to start.
func TestCluster(t *testing.T) {
	locktest.Slow(t, "a Redis Cluster")
	t.Parallel()
	g, _ := startNode(t)
	t.Run("SeveralKeysWithoutHashTagAreAlwaysRefused", g.severalKeys)
	t.Run("CrossSlotIsErrHashTag", g.crossSlot)
	t.Run("ABrokenReleaseIsNotSentAgain", g.brokenRelease)
	t.Run("WithoutHashTagEachLeaseHasOneKey", func(t *testing.T) {
		p := promises
		p.MultiKey = false
		locktest.Run(t, g.open, p, "Multi/Refused", "Exclusion/SeveralStores", "Fence/GrowsOverGrants")
	})
	t.Run("WithoutHashTagEachFairLeaseHasOneKey", func(t *testing.T) {
		p, fair := promisesOf("fair"), g
		p.MultiKey, fair.kind = false, kinds["fair"]
		locktest.Run(t, fair.open, p, "Multi/Refused", "FIFO/GrantsInOrderOfArrival")
	})
}

// In a Cluster of three nodes the keys of a hash tag are on one of them. Messages reach the
// waiters on whichever node they are subscribed.
func TestCluster_ThreeNodes(t *testing.T) { // not beside other tests, which have servers and time limits of their own
	locktest.Slow(t, "a Redis Cluster")
	g, _ := startNodes(t)
	contracts(t, g, "store", "waiter", "fair", "writer", "permit")
}

// severalKeys checks that several keys need a hash tag wherever they are: two keys of
// one bucket are refused as well.
func (g target) severalKeys(t *testing.T) {
	store, err := New(g.client(t, time.Minute), time.Minute, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	together := ""
	for i := 0; together == ""; i++ {
		if k := time.Duration(i).String(); store.scope(k) == store.scope("a") {
			together = k
		}
	}
	for _, other := range []string{"b", together} {
		if lease, err := store.TryAcquire(t.Context(), "a", other); !errors.Is(err, ErrHashTag) {
			t.Errorf("a and %q: got %+v and %v, want ErrHashTag", other, lease, err)
		}
	}
	locktest.Taken(t, store, "a", "a") // a duplicate counts once
}

// crossSlot checks that a wrapped client, which New cannot recognize as one of a
// Cluster, gets ErrHashTag from the server's answer.
func (g target) crossSlot(t *testing.T) {
	hidden := struct{ redis.UniversalClient }{g.client(t, time.Minute)}
	store, err := New(hidden, time.Minute, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	if _, err := store.TryAcquire(t.Context(), "a", "b"); !errors.Is(err, ErrHashTag) || errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("got %v, want ErrHashTag", err)
	}
}

// brokenRelease checks that a release whose connection breaks is not sent a second time by the client. The second
// would find nothing, and the result would be ErrLost. The control is the script without once.
func (g target) brokenRelease(t *testing.T) {
	const ttl = 10 * time.Second
	g.options.Prefix, g.proxy = newPrefix(t, g.url), newProxy(t, hostOf(t, g.url))
	client := g.client(t, ttl)
	store, err := New(client, ttl, g.options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	if err := store.Release(t.Context(), locktest.Taken(t, store, "a")); err != nil { // so that the node has the scripts
		t.Fatal(err)
	}
	g.proxy.Reset(true)
	broken := func(key string) locking.Lease {
		lease := locktest.Taken(t, store, key)
		g.proxy.Lose(1)
		return lease
	}

	lease := broken("b")
	locks, _ := store.names(lease.Keys)
	held, err := store.scripts.release.Run(t.Context(), client, locks, value(lease), lease.Owner).Int64()
	if held != 0 || err != nil || g.proxy.Lost() != 1 {
		t.Errorf("without once: %d still held, %v, %d replies lost; the client no longer repeats requests", held, err, g.proxy.Lost())
	}

	guard := NewGuard("return redis.call('INCR', KEYS[1])")
	name := g.options.Prefix + "{" + tag + "}n"
	if _, err := guard.Run(t.Context(), client, name+":fence", 1, []string{name}); err != nil { // so that the node has it
		t.Fatal(err)
	}
	g.proxy.Lose(1)
	_, err = guard.Run(t.Context(), client, name+":fence", 2, []string{name})
	if n, got := client.Get(t.Context(), name).Int(); !errors.Is(err, locking.ErrOutcomeUnknown) || n != 2 || got != nil {
		t.Errorf("guard: %v, and the script ran %d times (%v), want an unknown outcome and 2", err, n, got)
	}

	// Last: it is repeated in the background.
	if err := store.Release(t.Context(), broken("c")); !errors.Is(err, locking.ErrOutcomeUnknown) || g.proxy.Lost() != 3 {
		t.Errorf("got %v, want an unknown outcome; %d replies lost", err, g.proxy.Lost())
	}
}
