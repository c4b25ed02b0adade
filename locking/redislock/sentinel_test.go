package redislock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
)

// startSentinel starts a Sentinel that watches master and decides alone. A master that is
// only slow is not down for it: see suspect.
func startSentinel(t *testing.T, master *locktest.Server) *locktest.Server {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	text := strings.Join([]string{
		"sentinel monitor mymaster " + strings.Replace(master.Addr, ":", " ", 1) + " 1",
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

// T17: a failover to a replica that has not heard of the lock voids it. Two
// holders believe in their leases at once: the row lock behind them is what
// keeps the data right. The first one hears of it when it renews.
func TestSentinel_FailoverLosesTheLock(t *testing.T) {
	t.Parallel()
	master := locktest.Start(t, locktest.Redis(append([]string{"--repl-diskless-sync-delay", "0"}, locktest.Durable...)...))
	line := locktest.NewProxy(t, master.Addr) // of the replica to its master
	replica := locktest.Start(t, locktest.Redis(append([]string{"--replicaof", strings.Replace(line.Addr, ":", " ", 1)}, locktest.Durable...)...))
	waitForReplica(t, replica)
	sentinel := startSentinel(t, master)
	waitForSentinel(t, sentinel)
	store := sentinelStore(t, sentinel, 20*time.Second)

	before := take(t, store, "before")
	if err := store.Release(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	line.Down() // the replica receives no write after this
	first := take(t, store, "k")
	wantBusy(t, store, "k")
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
		t.Errorf("fence %d after the failover, %d before: the clock should have kept it growing", second.Fence, first.Fence)
	}
	if _, err := store.Renew(t.Context(), first); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew by the first holder: got %v, want ErrLost", err)
	}
	if err := store.Release(t.Context(), second); err != nil {
		t.Errorf("release by the second holder: %v", err)
	}
}

// suspect makes a sentinel that has heard nothing of its master for 300 ms replace it.
func suspect(t *testing.T, sentinel *locktest.Server) {
	t.Helper()
	client := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr})
	defer client.Close()
	if err := client.Set(t.Context(), "mymaster", "down-after-milliseconds", "300").Err(); err != nil {
		t.Fatal(err)
	}
}

func waitForReplica(t *testing.T, replica *locktest.Server) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: replica.Addr})
	defer client.Close()
	locktest.Eventually(t, "the replica is in step", func() bool {
		return strings.Contains(client.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
}

// waitForSentinel waits until it knows master and replica.
func waitForSentinel(t *testing.T, sentinel *locktest.Server) {
	t.Helper()
	client := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr})
	defer client.Close()
	locktest.Eventually(t, "the sentinel knows the replica", func() bool {
		replicas, err := client.Replicas(t.Context(), "mymaster").Result()
		return err == nil && len(replicas) == 1 && replicas[0]["master-link-status"] == "ok"
	})
}
