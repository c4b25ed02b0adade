// SPDX-License-Identifier: MIT

package mongolock

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

func TestClose_RefusesLaterRequests(t *testing.T) {
	t.Parallel()
	store := newStore(t, time.Minute)
	lease := locktest.Taken(t, store, "k")
	store.Close()
	store.Close() // a second Close has no effect
	_, acquire := store.TryAcquire(t.Context(), "k")
	_, renew := store.Renew(t.Context(), lease)
	for verb, err := range map[string]error{"acquire": acquire, "renew": renew, "release": store.Release(context.Background(), lease)} {
		if !errors.Is(err, locking.ErrClosed) || errors.Is(err, locking.ErrBusy) || errors.Is(err, locking.ErrLost) {
			t.Errorf("%s: %v, want ErrClosed", verb, err)
		}
	}
}

// Close waits for all goroutines (goleak checks after each run), even when the server
// does not answer and orphans are still to be removed; and it does not wait for the TTL.
func TestClose_WaitsForTheBackgroundWork(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	store, p, _ := disturbed(t, ttl)
	p.Lose(1 << 30)
	ctx, cancel := context.WithCancel(t.Context())
	var (
		callers sync.WaitGroup
		unknown atomic.Int32
	)
	for i := range 8 {
		callers.Go(func() {
			switch _, err := store.TryAcquire(ctx, strconv.Itoa(i)); {
			case errors.Is(err, locking.ErrOutcomeUnknown):
				unknown.Add(1)
			case err == nil || ctx.Err() == nil: // a call after the end of ctx sends nothing
				t.Errorf("got %v, want an unknown outcome", err)
			}
		})
	}
	locktest.Eventually(t, "an answer is lost", func() bool { return p.Lost() > 0 })
	cancel()
	callers.Wait()
	if unknown.Load() == 0 {
		t.Error("every request was answered")
	}
	asked := time.Now()
	store.Close()
	if took := time.Since(asked); took > ttl/2 {
		t.Errorf("Close took %v", took)
	}
}
