package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"shop/locking"
)

// unreachableError is a lock store that gave no answer. It is neither "yes" nor "busy".
type unreachableError struct{ err error }

func (e *unreachableError) Error() string {
	return "inventory: the lock store cannot be reached: " + e.err.Error()
}

// errWaited ends a wait. It is not ErrBusy to locking, which would go on asking.
var errWaited = errors.New("inventory: waited long enough for the lock")

// underLock runs fn while the lock store grants all skus to this purchase.
//
// What fn says is what happened. If the lease went away meanwhile, fn's ctx
// ended with locking.ErrLost as its cause, and fn either stopped in time, or
// committed, and then the purchase stands.
func (s *Service) underLock(ctx context.Context, p *purchase, fn func(context.Context) (Reply, error)) (Reply, error) {
	if !s.fallback.mayAsk() {
		return Reply{}, &unreachableError{errors.New("not asked, it did not answer others")}
	}
	var (
		reply   Reply
		fnErr   error
		entered bool
	)
	store := &patient{Store: s.locks, fallback: s.fallback, until: time.Now().Add(LockTimeout)}
	err := locking.Do(ctx, store, s.lock, lockNames(p.skus), func(ctx context.Context, _ locking.Lease) error {
		entered = true
		reply, fnErr = fn(ctx)
		return fnErr
	})
	var unreachable *unreachableError
	switch {
	case entered:
		return reply, fnErr
	case errors.As(err, &unreachable):
		return Reply{}, unreachable
	case ctx.Err() != nil:
		return Reply{}, context.Cause(ctx)
	case errors.Is(err, errWaited):
		return Reply{}, fmt.Errorf("%w: waited %v for %q", locking.ErrBusy, LockTimeout, p.skus)
	default:
		return Reply{}, err
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

// patient is the lock store with an end to waiting, and with one question
// answered: was that a "no", or no answer at all?
type patient struct {
	locking.Store
	fallback *fallback
	until    time.Time
}

// TryAcquire asks once. An error is never taken for a grant, and never for "busy".
func (w *patient) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	lease, err := w.Store.TryAcquire(ctx, keys...)
	switch {
	case err == nil:
		w.fallback.answered()
		return lease, nil
	case errors.Is(err, locking.ErrBusy):
		w.fallback.answered()
		if time.Now().After(w.until) {
			return lease, errWaited
		}
		return lease, err
	case ctx.Err() != nil, errors.Is(err, locking.ErrKey): // says nothing about the store
		return lease, err
	default:
		w.fallback.failed(err)
		return lease, &unreachableError{err}
	}
}
