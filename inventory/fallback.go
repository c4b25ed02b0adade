package inventory

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"shop/locking"
)

const (
	probeEvery  = 500 * time.Millisecond // how often one purchase asks an unreachable store again
	slotTimeout = 100 * time.Millisecond // how long a purchase waits to go on without it
	tellEvery   = 10 * time.Second       // how often the log hears of locks that stay busy
)

// fallback is what a purchase does without the lock: while the lock store cannot
// be reached, and while its lock stays busy.
//
//	reachable ──an error──► unreachable ──a probe is answered──► reachable
//	                           │    ▲
//	                           └────┘ the probe fails
//
// While unreachable, one purchase every probeEvery asks, and so does Degraded; the
// others do not pay for its time-out. An answer is an answer: "busy" shows that
// the store lives.
type fallback struct {
	slots chan struct{} // one for each purchase that goes on without the lock; its size is the bound
	log   *slog.Logger

	mu      sync.Mutex
	since   time.Time // unreachable since; zero: reachable
	probeAt time.Time // the next purchase after this asks again
	toldAt  time.Time // when the log last heard of a lock that stays busy
}

func newFallback(most int, log *slog.Logger) *fallback {
	return &fallback{slots: make(chan struct{}, most), log: log}
}

// mayAsk says whether this purchase may ask the store; while it is
// unreachable, whether it is the probe.
func (f *fallback) mayAsk() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if !f.since.IsZero() && now.Before(f.probeAt) {
		return false
	}
	f.probeAt = now.Add(probeEvery)
	return true
}

// answered is told that the store gave an answer.
func (f *fallback) answered() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since.IsZero() {
		return
	}
	f.log.Info("inventory: the lock store is back", "after", time.Since(f.since))
	f.since = time.Time{}
}

// failed is told that it gave none. The log hears of it once.
func (f *fallback) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since.IsZero() {
		f.since = time.Now()
		f.log.Warn("inventory: the lock store cannot be reached; redis+row goes on with the row lock alone",
			"at_once", cap(f.slots), "error", err)
	}
	f.probeAt = time.Now().Add(probeEvery)
}

// bypassed is told that a purchase goes on though its lock is busy. The log hears
// of it once in tellEvery: a lock that is stuck is waited for by each purchase.
func (f *fallback) bypassed(skus []string, why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.toldAt) >= tellEvery {
		f.toldAt = now
		f.log.Warn("inventory: a lock stays busy; redis+row goes on with the row lock alone",
			"skus", skus, "at_once", cap(f.slots), "error", why)
	}
}

func (f *fallback) degraded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.since.IsZero()
}

// enter waits shortly for a slot. Without the lock store in front, buyers of one
// row queue inside PostgreSQL, each with a connection: so few at once, and the
// rest is told to come again.
func (f *fallback) enter(ctx context.Context) (leave func(), err error) {
	timer := time.NewTimer(slotTimeout)
	defer timer.Stop()
	select {
	case f.slots <- struct{}{}:
		return func() { <-f.slots }, nil
	case <-timer.C:
		return nil, fmt.Errorf("%w: %d purchases already go on without the lock", locking.ErrBusy, cap(f.slots))
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
