// SPDX-License-Identifier: MIT

package redislock

import (
	"context"
	"errors"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
	"shop/locking/servertest/daemon"
)

// T25: a server restarts without the lock, within the lock's TTL.
func TestRestart_WithoutTheDataRenewReportsTheLoss(t *testing.T) {
	locktest.Slow(t, "a restart of Redis")
	server := servertest.Start(t, daemon.Redis("--appendonly", "no"))
	store := storeAt(t, "redis://"+server.Addr, 10*time.Second, Options{})
	first := locktest.Taken(t, store, "k")
	server.Restart()
	other := storeAt(t, "redis://"+server.Addr, 10*time.Second, Options{})
	second := locktest.Taken(t, other, "k") // two holders: only a row lock or a fence protects the data now
	if second.Fence <= first.Fence {
		t.Errorf("fence %d after the restart, %d before: want it to grow with the clock", second.Fence, first.Fence)
	}
	if _, err := store.Renew(t.Context(), first); !errors.Is(err, locking.ErrLost) {
		t.Errorf("renew by the first holder: got %v, want ErrLost", err)
	}
	if _, err := other.Renew(t.Context(), second); err != nil {
		t.Errorf("renew by the second holder: %v", err)
	}
}

// A restart with the data restores the lock and the counter, whatever the clock shows.
// The counter is an hour ahead of the clock, as if the clock had been set back.
func TestRestart_WithTheDataKeepsLockAndCounter(t *testing.T) {
	locktest.Slow(t, "a restart of Redis")
	server := servertest.Start(t, daemon.Redis(daemon.Durable...))
	store := storeAt(t, "redis://"+server.Addr, 30*time.Second, Options{})
	ahead := time.Now().Add(time.Hour).UnixMicro()
	store.client.Set(t.Context(), store.Scope("k")+"fence", ahead, 0)
	first := locktest.Taken(t, store, "k")
	if first.Fence != locking.Fence(ahead+1) {
		t.Errorf("fence %d, want the counter's next, %d", first.Fence, ahead+1)
	}
	server.Restart()
	locktest.Eventually(t, "the holder renews", func() bool {
		_, err := store.Renew(t.Context(), first)
		return err == nil
	})
	locktest.WantHeld(t, store, "k")
	if err := store.Release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if second := locktest.Taken(t, store, "k"); second.Fence != first.Fence+1 {
		t.Errorf("fence %d after %d", second.Fence, first.Fence)
	}
}

// While the server is unavailable, a request fails at once, and not with ErrBusy. When
// the server is available again, the Store works without further action.
func TestRestart_RequestsFailAtOnceUntilTheServerIsBack(t *testing.T) {
	locktest.Slow(t, "a restart of Redis")
	server := servertest.Start(t, daemon.Redis(daemon.Durable...))
	store := storeAt(t, "redis://"+server.Addr, 30*time.Second, Options{})
	lease := locktest.Taken(t, store, "k")
	server.Kill()
	// The first request uses an open connection: its outcome is unknown. The next one is refused.
	_, err := store.TryAcquire(t.Context(), "other")
	if err == nil || errors.Is(err, locking.ErrBusy) {
		t.Errorf("got %v, want an error that is not ErrBusy", err)
	}
	asked := time.Now()
	_, err = store.TryAcquire(t.Context(), "other")
	if took := time.Since(asked); took > store.ttl/3 { // without an answer it would retry for half the TTL
		t.Errorf("refused after %v", took)
	}
	if err == nil || errors.Is(err, locking.ErrBusy) || errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a refused connection", err)
	}
	if _, err := store.Renew(t.Context(), lease); err == nil || errors.Is(err, locking.ErrLost) {
		t.Errorf("renew: got %v, want an error that is not ErrLost", err)
	}
	server.Start()
	locktest.Eventually(t, "the store works again", func() bool {
		_, err := store.TryAcquire(t.Context(), "other")
		return err == nil
	})
}
