package redislock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
)

// startSentinel starts a Sentinel that monitors master with a quorum. It does not
// take a slow master for down, until suspect lowers its threshold.
func startSentinel(t testing.TB, master *locktest.Server, quorum string) *locktest.Server {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	text := strings.Join([]string{
		"sentinel monitor mymaster " + strings.Replace(master.Addr, ":", " ", 1) + " " + quorum,
		"sentinel down-after-milliseconds mymaster 60000",
		"sentinel failover-timeout mymaster 3000",
	}, "\n")
	if err := os.WriteFile(conf, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return locktest.Start(t, locktest.Redis(conf, "--sentinel"))
}

func sentinelStore(t *testing.T, sentinel *locktest.Server, ttl time.Duration) *Store {
	t.Helper()
	client := redis.NewUniversalClient(Tune(&redis.UniversalOptions{
		MasterName: "mymaster", Addrs: []string{sentinel.Addr},
	}, ttl))
	t.Cleanup(func() { _ = client.Close() })
	store, err := New(client, ttl, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// startSentinels starts a master with two replicas and three sentinels.
func startSentinels(t testing.TB) (g target, master *locktest.Server) {
	t.Helper()
	master = locktest.Start(t, locktest.Redis(append([]string{"--repl-diskless-sync-delay", "0"}, locktest.Durable...)...))
	for range 2 {
		waitForReplica(t, locktest.Start(t, locktest.Redis("--replicaof", strings.Replace(master.Addr, ":", " ", 1))))
	}
	g = target{url: "redis://" + master.Addr, start: startSentinels}
	for range 3 {
		sentinel := startSentinel(t, master, "2")
		waitForSentinel(t, sentinel, 2)
		g.sentinels = append(g.sentinels, sentinel.Addr)
	}
	return g, master
}

// The contract as long as the master lives. It restarts before a sentinel replaces it.
func TestSentinel_Contract(t *testing.T) { // not beside other tests, which have servers and time limits of their own
	locktest.Slow(t, "a Redis with Sentinels")
	g, _ := startSentinels(t)
	contracts(t, g, "store", "waiter", "fair", "writer", "permit")
}

// T17: a failover to a replica that has not received the lock voids it. Two leases are
// within their Until at once, and only a row lock or a fence protects the data. The first
// holder learns of the loss when it renews.
func TestSentinel_FailoverLosesTheLock(t *testing.T) {
	locktest.Slow(t, "a Redis with Sentinels, and a fail-over")
	t.Parallel()
	master := locktest.Start(t, locktest.Redis(append([]string{"--repl-diskless-sync-delay", "0"}, locktest.Durable...)...))
	proxy := locktest.NewProxy(t, master.Addr) // between the replica and its master
	replica := locktest.Start(t, locktest.Redis(append([]string{"--replicaof", strings.Replace(proxy.Addr, ":", " ", 1)}, locktest.Durable...)...))
	waitForReplica(t, replica)
	sentinel := startSentinel(t, master, "1")
	waitForSentinel(t, sentinel, 1)
	store := sentinelStore(t, sentinel, 20*time.Second)

	before := locktest.Taken(t, store, "before")
	if err := store.Release(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	proxy.Down() // the replica receives no write after this
	first := locktest.Taken(t, store, "k")
	locktest.WantHeld(t, store, "k")
	master.Kill()
	suspect(t, sentinel)

	var second locking.Lease
	locktest.Eventually(t, "the promoted replica grants the key", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var err error
		second, err = store.TryAcquire(ctx, "k")
		return err == nil
	})
	if now := time.Now(); now.After(first.Until) || now.After(second.Until) {
		t.Fatalf("the leases do not overlap: %v and %v", first.Until, second.Until)
	}
	if second.Fence <= first.Fence {
		t.Errorf("fence %d after the failover, %d before: want it to grow with the clock", second.Fence, first.Fence)
	}
	if _, err := store.Renew(t.Context(), first); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew by the first holder: got %v, want ErrLost", err)
	}
	if err := store.Release(t.Context(), second); err != nil {
		t.Errorf("release by the second holder: %v", err)
	}
}

// suspect makes a sentinel replace its master after a second without an answer from it.
func suspect(t *testing.T, sentinel *locktest.Server) {
	t.Helper()
	client := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr})
	defer client.Close()
	if err := client.Set(t.Context(), "mymaster", "down-after-milliseconds", "1000").Err(); err != nil {
		t.Fatal(err)
	}
}

func waitForReplica(t testing.TB, replica *locktest.Server) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: replica.Addr})
	defer client.Close()
	locktest.Eventually(t, "the replica is synchronized", func() bool {
		return strings.Contains(client.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
}

// waitForSentinel waits until sentinel knows the master and all of its replicas.
func waitForSentinel(t testing.TB, sentinel *locktest.Server, count int) {
	t.Helper()
	client := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr})
	defer client.Close()
	locktest.Eventually(t, "the sentinel knows the replicas", func() bool {
		replicas, err := client.Replicas(t.Context(), "mymaster").Result()
		return err == nil && len(replicas) == count && !slices.ContainsFunc(replicas, func(r map[string]string) bool {
			return r["master-link-status"] != "ok"
		})
	})
}
