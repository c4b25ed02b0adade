package redislock

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

func TestClose_RefusesLaterRequests(t *testing.T) {
	store := newStore(t, time.Minute)
	lease := locktest.Taken(t, store, "k")
	store.Close()
	store.Close() // a second Close has no effect
	if _, err := store.TryAcquire(t.Context(), "k"); !errors.Is(err, ErrClosed) || errors.Is(err, locking.ErrBusy) {
		t.Errorf("acquire: got %v, want ErrClosed", err)
	}
	if _, err := store.Renew(t.Context(), lease); !errors.Is(err, ErrClosed) || errors.Is(err, locking.ErrLost) {
		t.Errorf("renew: got %v, want ErrClosed", err)
	}
	if err := store.Release(t.Context(), lease); !errors.Is(err, ErrClosed) {
		t.Errorf("release: got %v, want ErrClosed", err)
	}
}

// Close waits for all goroutines (goleak checks after each run), even when the server
// does not answer and orphans are still to be removed; and it does not wait for the TTL.
func TestClose_WaitsForTheBackgroundWork(t *testing.T) {
	const ttl = 6 * time.Second
	store, p, _ := behindProxy(t, ttl)
	p.Lose(1 << 30)
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() {
			if _, err := store.TryAcquire(ctx, strconv.Itoa(i)); err == nil || errors.Is(err, locking.ErrBusy) {
				t.Errorf("got %v, want an unknown outcome or an unsent request", err)
			}
		})
	}
	locktest.Eventually(t, "an answer is lost", func() bool { return p.Lost() > 0 })
	cancel()
	callers.Wait()
	asked := time.Now()
	store.Close()
	if took := time.Since(asked); took > ttl/2 {
		t.Errorf("Close took %v", took)
	}
}
