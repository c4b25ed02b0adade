package locking

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Acquire waits for the keys until ctx ends, or for Options.MaxWait: in the
// store's own queue if it is a Waiter, else by asking again after Options.Backoff.
//
// When ctx ends first, the error matches ctx.Err() (ErrLost instead, if ctx is that of
// a Do whose lease is lost), and ErrBusy too if a busy key is what it waited for. After
// MaxWait it matches ErrBusy; unless the store has not answered at all, which is not
// called busy. Any other error of the store is returned at once: whether to go on
// without a lock service is not for a lock to decide.
//
// Whatever the error, nothing is held, and it never matches ErrOutcomeUnknown: a
// request without answer may have taken the *lock*, which the store clears up; to
// the caller it would mean that the caller's own work may have happened.
//
// The lease is the caller's to renew and to release. Do does both.
func Acquire(ctx context.Context, s Store, o Options, keys ...string) (Lease, error) {
	if err := CheckKeys(keys); err != nil {
		return Lease{}, err
	}
	a := acquisition{ctx: ctx, waiting: ctx, observer: o.Observer, keys: keys, start: time.Now()}
	if o.MaxWait > 0 {
		var cancel context.CancelFunc
		a.waiting, cancel = context.WithTimeout(ctx, o.MaxWait)
		defer cancel()
	}
	if ctx.Err() != nil {
		return Lease{}, a.giveUp(nil)
	}
	ask := s.TryAcquire
	if w, ok := s.(Waiter); ok {
		ask = w.Acquire
	}
	for n := 0; ; n++ {
		a.tell(Attempt, Lease{}, nil)
		lease, err := ask(a.waiting, keys...)
		if err == nil {
			a.tell(Acquired, lease, nil)
			return lease, nil
		}
		if !errors.Is(err, ErrBusy) {
			return Lease{}, a.giveUp(err)
		}
		a.busy = err
		a.tell(Busy, Lease{}, err)
		if !sleep(a.waiting, o.Backoff.Wait(n)) {
			return Lease{}, a.giveUp(nil)
		}
	}
}

// acquisition is one Acquire under way.
type acquisition struct {
	ctx, waiting context.Context // the caller's, and that within MaxWait
	observer     Observer
	keys         []string
	start        time.Time
	busy         error // the store's last answer of that kind
}

// giveUp is the end without a lease. err is what the store said after its last
// "busy": its own failure, or a request cut short; nil: the wait ended between two.
func (a *acquisition) giveUp(err error) error {
	kind, waited := TimedOut, time.Since(a.start).Round(time.Millisecond)
	switch {
	case a.ctx.Err() != nil:
		why := ended(a.ctx)
		for _, said := range []error{err, a.busy} {
			switch {
			case said == nil:
			case errors.Is(said, why):
				why = said
			default:
				why = fmt.Errorf("%w: %w", said, why)
			}
		}
		err = fmt.Errorf("locking: acquire %q: gave up after %v: %w", a.keys, waited, why)
	case a.waiting.Err() == nil: // asking again would be of no use
		kind = Failed
	case a.busy != nil: // the end of a.waiting is not wrapped: the caller has time left
		err = fmt.Errorf("locking: acquire %q: gave up after %v: %w", a.keys, waited, ErrBusy)
	default:
		kind, err = Failed, fmt.Errorf("locking: acquire %q: no answer for %v: %v", a.keys, waited, err)
	}
	err = &notHeldError{err}
	a.tell(kind, Lease{}, err)
	return err
}

func (a *acquisition) tell(kind Kind, l Lease, err error) {
	if a.observer != nil {
		a.observer(Event{Kind: kind, Keys: a.keys, Owner: l.Owner, Fence: l.Fence, Wait: time.Since(a.start), Err: err})
	}
}

// notHeldError is all that its error is, but never ErrOutcomeUnknown.
type notHeldError struct{ error }

func (e *notHeldError) As(target any) bool { return errors.As(e.error, target) }
func (e *notHeldError) Is(target error) bool {
	return target != ErrOutcomeUnknown && errors.Is(e.error, target)
}
