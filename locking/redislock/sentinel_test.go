// SPDX-License-Identifier: MIT

package redislock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/redislock/redistest"
	"shop/locking/servertest"
	"shop/locking/servertest/daemon"
)

func sentinelStore(t *testing.T, sentinel *servertest.Server, ttl time.Duration) *opened {
	t.Helper()
	client := redis.NewUniversalClient(Tune(&redis.UniversalOptions{
		MasterName: "mymaster", Addrs: []string{sentinel.Addr},
	}, ttl))
	t.Cleanup(func() { _ = client.Close() })
	return storeOf(t, client, ttl, Options{})
}

// The contract as long as the master lives. It restarts before a sentinel replaces it.
func TestSentinel_Contract(t *testing.T) { // not beside other tests, which have servers and time limits of their own
	locktest.Slow(t, "a Redis with Sentinels")
	g, _ := redistest.Sentinels(t)
	locktest.Run(t, target{Target: g}.open, promises)
}

// T17: a failover to a replica that has not received the lock voids it. Two leases are
// within their Until at once, and only a row lock or a fence protects the data. The first
// holder learns of the loss when it renews.
func TestSentinel_FailoverLosesTheLock(t *testing.T) {
	locktest.Slow(t, "a Redis with Sentinels, and a fail-over")
	t.Parallel()
	master := servertest.Start(t, daemon.Redis(append([]string{"--repl-diskless-sync-delay", "0"}, daemon.Durable...)...))
	proxy := servertest.NewProxy(t, master.Addr) // between the replica and its master
	replica := servertest.Start(t, daemon.Redis(append([]string{"--replicaof", strings.Replace(proxy.Addr, ":", " ", 1)}, daemon.Durable...)...))
	redistest.Replicated(t, replica)
	sentinel := redistest.Sentinel(t, master, "1")
	redistest.Knows(t, sentinel, 1)
	store, other := sentinelStore(t, sentinel, 20*time.Second), sentinelStore(t, sentinel, 20*time.Second)

	before := locktest.Taken(t, store, "before")
	if err := store.Release(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	proxy.Down() // the replica receives no write after this
	first := locktest.Taken(t, store, "k")
	locktest.WantHeld(t, store, "k")
	master.Kill()
	redistest.Suspect(t, sentinel)

	var second locking.Lease
	locktest.Eventually(t, "the promoted replica grants the key", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var err error
		second, err = other.TryAcquire(ctx, "k")
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
	if err := other.Release(t.Context(), second); err != nil {
		t.Errorf("release by the second holder: %v", err)
	}
}
