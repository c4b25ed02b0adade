package inventory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"shop/locking"
)

// noLockError is why a purchase has no lock. It matches locking.ErrBusy when
// another holder kept the lock for all of MaxWait; else the lock store gave no
// answer, which is neither a grant nor "busy".
type noLockError struct{ err error }

func (e *noLockError) Error() string { return "inventory: no lock: " + e.err.Error() }
func (e *noLockError) Unwrap() error { return e.err }

// underLock runs fn while the lock store grants all skus to this purchase.
//
// What fn returns is what happened. If the lease was lost meanwhile, fn's ctx
// ended with locking.ErrLost as its cause, and fn either stopped in time, or
// committed, and then the purchase stands.
func (s *Service) underLock(ctx context.Context, p *purchase, fn func(context.Context) (Reply, error)) (Reply, error) {
	if !s.breaker.mayAsk() {
		return Reply{}, &noLockError{errors.New("the lock store gave no answer a moment ago")}
	}
	var (
		reply   Reply
		fnErr   error
		entered bool
		start   = time.Now()
		store   = &watchedStore{Store: s.locks, breaker: s.breaker}
	)
	err := locking.Do(ctx, store, s.lock, lockNames(p.skus), func(ctx context.Context, _ locking.Lease) error {
		entered = true
		reply, fnErr = fn(ctx)
		return fnErr
	})
	if entered {
		return reply, fnErr
	}
	silent := !store.answered && time.Since(start) > slotTimeout
	return Reply{}, s.notGranted(ctx, err, silent)
}

// notGranted tells apart why there is no lock: the caller left, another holder
// has it, or the store does not answer.
func (s *Service) notGranted(ctx context.Context, err error, silent bool) error {
	switch {
	case errors.Is(err, locking.ErrKey):
		return err
	case ctx.Err() != nil:
		if ctx.Err() == context.DeadlineExceeded && silent {
			s.breaker.failed(err) // not one answer in all the time that the caller had
		}
		return context.Cause(ctx)
	case !errors.Is(err, locking.ErrBusy):
		s.breaker.failed(err)
	}
	return &noLockError{err}
}

// lockNames are the keys of the skus at the lock store, in the same order.
func lockNames(skus []string) []string {
	names := make([]string, len(skus))
	for i, sku := range skus {
		names[i] = "product/" + sku
	}
	return names
}

// Degraded probes the lock store, and reports whether it gives no answer: then
// redis+row goes on with the row lock alone. The probe is a lock of the Service's
// own, because a server that is full or read-only answers a ping.
func (s *Service) Degraded(ctx context.Context) bool {
	if s.locks == nil {
		return false
	}
	store := &watchedStore{Store: s.locks, breaker: s.breaker}
	lease, err := store.TryAcquire(ctx, s.probe)
	switch {
	case err == nil:
		_ = store.Release(ctx, lease) // else its TTL ends it
	case !store.answered && ctx.Err() != context.Canceled:
		s.breaker.failed(err)
	}
	return s.breaker.isOpen()
}

// watchedStore is the lock store of one purchase. It tells the breaker of each
// answer; "busy" is one.
type watchedStore struct {
	locking.Store
	breaker  *breaker
	answered bool
}

// TryAcquire asks once.
func (w *watchedStore) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	lease, err := w.Store.TryAcquire(ctx, keys...)
	if err == nil || errors.Is(err, locking.ErrBusy) {
		w.answered = true
		w.breaker.answered()
	}
	return lease, err
}

const (
	probeEvery  = 500 * time.Millisecond // how often one purchase asks an unreachable store again
	slotTimeout = 100 * time.Millisecond // how long a purchase waits to go on without the lock
	logEvery    = 10 * time.Second       // how often the log reports locks that stay busy
)

// breaker is a circuit breaker in front of the lock store, and the bound of what
// goes on without its lock.
//
//	closed ──an error──► open ──a probe is answered──► closed
//	                      │ ▲
//	                      └─┘ the probe fails
//
// While it is open, one purchase every probeEvery asks the store, and so does
// Degraded; the others do not pay for its time-out.
type breaker struct {
	slots chan struct{} // one for each purchase that goes on without the lock; its size is the bound
	log   *slog.Logger

	mu       sync.Mutex
	openedAt time.Time // zero: closed
	probeAt  time.Time // the next purchase after this asks again
	loggedAt time.Time // when the log last reported a lock that stays busy
}

func newBreaker(slots int, log *slog.Logger) *breaker {
	return &breaker{slots: make(chan struct{}, slots), log: log}
}

// mayAsk reports whether this purchase may ask the store: always while the breaker
// is closed; while it is open, whether this purchase is the probe.
func (b *breaker) mayAsk() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if !b.openedAt.IsZero() && now.Before(b.probeAt) {
		return false
	}
	b.probeAt = now.Add(probeEvery)
	return true
}

// answered closes the breaker.
func (b *breaker) answered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.openedAt.IsZero() {
		return
	}
	b.log.Info("inventory: the lock store is back", "after", time.Since(b.openedAt))
	b.openedAt = time.Time{}
}

// failed opens the breaker.
func (b *breaker) failed(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.openedAt.IsZero() {
		b.openedAt = time.Now()
		b.log.Warn("inventory: the lock store cannot be reached; redis+row goes on with the row lock alone",
			"at_once", cap(b.slots), "error", err)
	}
	b.probeAt = time.Now().Add(probeEvery)
}

func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.openedAt.IsZero()
}

// bypassed reports that a purchase goes on though its lock is busy, once in
// logEvery: each purchase of that product waits for the same stuck lock.
func (b *breaker) bypassed(skus []string, why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); now.Sub(b.loggedAt) >= logEvery {
		b.loggedAt = now
		b.log.Warn("inventory: a lock stays busy; redis+row goes on with the row lock alone",
			"skus", skus, "at_once", cap(b.slots), "error", why)
	}
}

// enter waits shortly for a slot. Without the lock store in front, buyers of one
// row queue inside PostgreSQL, each with a connection: so few at once, and the
// others are busy.
func (b *breaker) enter(ctx context.Context) (leave func(), err error) {
	timer := time.NewTimer(slotTimeout)
	defer timer.Stop()
	select {
	case b.slots <- struct{}{}:
		return func() { <-b.slots }, nil
	case <-timer.C:
		return nil, fmt.Errorf("%w: %d purchases already go on without the lock", locking.ErrBusy, cap(b.slots))
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
