package redislock

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
)

// In a Cluster the keys of a Store are spread, and each lease has one key.
func TestContract_ClusterWithoutHashTag(t *testing.T) {
	t.Parallel()
	p := promises
	p.MultiKey = false
	locktest.Run(t, target{url: startCluster(t).url(), cluster: true}.open, p)
}

// With a hash tag they are on one node, and a lease may have several.
func TestContract_ClusterWithHashTag(t *testing.T) {
	t.Parallel()
	locktest.Run(t, target{url: startCluster(t).url(), cluster: true, options: Options{HashTag: "accounts"}}.open, promises)
}

// That several keys need a hash tag does not depend on where they happen to be:
// also two keys of one bucket are refused.
func TestCluster_SeveralKeysWithoutHashTagAreRefusedAlways(t *testing.T) {
	t.Parallel()
	g := target{url: startCluster(t).url(), cluster: true}
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
	take(t, store, "a", "a") // one key, named twice
}

// A client that hides what it is gets its answer from the server.
func TestCluster_CrossSlotIsExplained(t *testing.T) {
	t.Parallel()
	g := target{url: startCluster(t).url(), cluster: true}
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
