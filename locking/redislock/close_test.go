// SPDX-License-Identifier: MIT

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
