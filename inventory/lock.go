package inventory

import (
	"context"
	"errors"
	"time"

	"shop/locking"
)

// unreachableError is a lock store that gave no answer. It is neither "yes" nor "busy".
type unreachableError struct{ err error }

func (e *unreachableError) Error() string {
	return "inventory: the lock store cannot be reached: " + e.err.Error()
}

// underLock runs fn while the lock store grants all skus to this purchase.
//
// What fn says is what happened. If the lease went away meanwhile, fn's ctx
// ended with locking.ErrLost as its cause, and fn either stopped in time, or
// committed, and then the purchase stands.
func (s *Service) underLock(ctx context.Context, p *purchase, fn func(context.Context) (Reply, error)) (Reply, error) {
	if !s.fallback.mayAsk() {
		return Reply{}, &unreachableError{errors.New("not asked again so soon")}
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

// notGranted tells apart why there is no lock: the caller left, someone else has
// it, or the store does not answer. "No answer" is never taken for a grant, nor for "busy".
func (s *Service) notGranted(ctx context.Context, err error, silent bool) error {
	switch {
	case errors.Is(err, locking.ErrKey):
		return err
	case ctx.Err() != nil:
		if ctx.Err() == context.DeadlineExceeded && silent {
			s.fallback.failed(err) // not one answer in all the time that the caller had
		}
		return context.Cause(ctx)
	case errors.Is(err, locking.ErrBusy):
		return err
	default:
		s.fallback.failed(err)
		return &unreachableError{err}
	}
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
