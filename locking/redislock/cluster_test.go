package redislock

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
)

// startCluster starts a Cluster of one node that serves all the slots.
func startCluster(t testing.TB) *locktest.Server {
	t.Helper()
	_, port, _ := net.SplitHostPort(locktest.FreeAddr(t))
	s := locktest.Start(t, locktest.Redis(append([]string{"--cluster-enabled", "yes", "--cluster-port", port}, locktest.Durable...)...))
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	if err := client.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	locktest.Eventually(t, "the cluster", func() bool {
		return strings.Contains(client.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	return s
}

// The tests share a Cluster of one node, which takes two seconds to start.
func TestCluster(t *testing.T) {
	t.Parallel()
	g := target{url: "redis://" + startCluster(t).Addr, cluster: true}
	t.Run("WithoutHashTagEachLeaseHasOneKey", func(t *testing.T) {
		p := promises
		p.MultiKey = false
		locktest.Run(t, g.open, p)
	})
	t.Run("WithHashTagALeaseMayHaveSeveral", func(t *testing.T) {
		tagged := g
		tagged.options.HashTag = "accounts"
		locktest.Run(t, tagged.open, promises)
	})
	t.Run("SeveralKeysWithoutHashTagAreAlwaysRefused", g.severalKeys)
	t.Run("CrossSlotIsErrHashTag", g.crossSlot)
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
	take(t, store, "a", "a") // a duplicate counts once
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
