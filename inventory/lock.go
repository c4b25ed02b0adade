package inventory

import (
	"context"
	"errors"
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
// What fn says is what happened. If the lease went away meanwhile, fn's ctx
// ended with locking.ErrLost as its cause, and fn either stopped in time, or
// committed, and then the purchase stands.
func (s *Service) underLock(ctx context.Context, p *purchase, fn func(context.Context) (Reply, error)) (Reply, error) {
	if !s.fallback.mayAsk() {
		return Reply{}, &noLockError{errors.New("the lock store gave no answer a moment ago")}
	}
	var (
		reply   Reply
		fnErr   error
		entered bool
		start   = time.Now()
		store   = &witness{Store: s.locks, fallback: s.fallback}
	)
	err := locking.Do(ctx, store, s.lock, lockNames(p.skus), func(ctx context.Context, _ locking.Lease) error {
		entered = true
		reply, fnErr = fn(ctx)
		return fnErr
	})
	if entered {
		return reply, fnErr
	}
	silent := !store.heard && time.Since(start) > slotTimeout
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
			s.fallback.failed(err) // not one answer in all the time that the caller had
		}
		return context.Cause(ctx)
	case !errors.Is(err, locking.ErrBusy):
		s.fallback.failed(err)
	}
	return &noLockError{err}
}

// Degraded asks the lock store, and says whether it gives no answer: then
// redis+row goes on with the row lock alone. What is asked for is a lock of the
// Service's own, because a server that is full or read-only answers a ping.
func (s *Service) Degraded(ctx context.Context) bool {
	if s.locks == nil {
		return false
	}
	store := &witness{Store: s.locks, fallback: s.fallback}
	lease, err := store.TryAcquire(ctx, s.probe)
	switch {
	case err == nil:
		_ = store.Release(ctx, lease) // else its TTL ends it
	case !store.heard && ctx.Err() != context.Canceled:
		s.fallback.failed(err)
	}
	return s.fallback.degraded()
}

// lockNames are the keys of the skus at the lock store, in the same order.
func lockNames(skus []string) []string {
	names := make([]string, len(skus))
	for i, sku := range skus {
		names[i] = "product/" + sku
	}
	return names
}

// witness is the lock store, and notices whether it answers. "Busy" is an answer.
type witness struct {
	locking.Store
	fallback *fallback
	heard    bool
}

// TryAcquire asks once.
func (w *witness) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	lease, err := w.Store.TryAcquire(ctx, keys...)
	if err == nil || errors.Is(err, locking.ErrBusy) {
		w.heard = true
		w.fallback.answered()
	}
	return lease, err
}
