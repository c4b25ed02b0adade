package locking

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Acquire waits for the keys until ctx ends: in the store's own queue if it is a
// Waiter, else by asking again after Options.Backoff.
//
// When ctx ends first, the error matches ctx.Err(), and ErrBusy too if a busy
// key is what it waited for. Any other error of the store is returned at once:
// whether to go on without a lock service is not for a lock to decide. Whatever
// the error, nothing is held, and it never matches ErrOutcomeUnknown: a request
// without answer may have taken the *lock*, which the store clears up; to a
// caller the word would say that his work may have happened.
//
// The lease is the caller's to renew and to release. Do does both.
func Acquire(ctx context.Context, s Store, o Options, keys ...string) (Lease, error) {
	if err := CheckKeys(keys); err != nil {
		return Lease{}, err
	}
	a := acquisition{observer: o.Observer, keys: keys, start: time.Now()}
	if ctx.Err() != nil {
		return Lease{}, a.timedOut(ctx, nil, nil)
	}
	if w, ok := s.(Waiter); ok {
		return a.queue(ctx, w)
	}
	return a.poll(ctx, s, o.Backoff)
}

// acquisition is one Acquire under way.
type acquisition struct {
	observer Observer
	keys     []string
	start    time.Time
}

// queue leaves the waiting to the store.
func (a *acquisition) queue(ctx context.Context, w Waiter) (Lease, error) {
	a.tell(Attempt, Lease{}, nil)
	lease, err := w.Acquire(ctx, a.keys...)
	if err != nil {
		return Lease{}, a.failed(ctx, nil, err)
	}
	a.tell(Acquired, lease, nil)
	return lease, nil
}

// poll asks until it is granted, refused for another reason than busy, or ctx ends.
func (a *acquisition) poll(ctx context.Context, s Store, b Backoff) (Lease, error) {
	var busy error
	for n := 0; ; n++ {
		a.tell(Attempt, Lease{}, nil)
		lease, err := s.TryAcquire(ctx, a.keys...)
		if err == nil {
			a.tell(Acquired, lease, nil)
			return lease, nil
		}
		if !errors.Is(err, ErrBusy) {
			return Lease{}, a.failed(ctx, busy, err)
		}
		busy = err
		a.tell(Busy, Lease{}, err)
		if !sleep(ctx, b.Wait(n)) {
			return Lease{}, a.timedOut(ctx, busy, nil)
		}
	}
}

// failed is the end with an answer that is neither yes nor busy: the store's
// fault, unless ctx ended under the request.
func (a *acquisition) failed(ctx context.Context, busy, err error) error {
	if ctx.Err() != nil {
		return a.timedOut(ctx, busy, err)
	}
	a.tell(Failed, Lease{}, err)
	return &notHeldError{err}
}

// timedOut is the end of ctx; busy is the last answer before it, err that of the
// request that it cut short.
func (a *acquisition) timedOut(ctx context.Context, busy, err error) error {
	why := ended(ctx)
	switch {
	case err == nil:
	case errors.Is(err, why):
		why = err
	default:
		why = fmt.Errorf("%w: %w", err, why)
	}
	if busy != nil {
		why = fmt.Errorf("%w: %w", busy, why)
	}
	waited := time.Since(a.start).Round(time.Millisecond)
	err = &notHeldError{fmt.Errorf("locking: acquire %q: gave up after %v: %w", a.keys, waited, why)}
	a.tell(TimedOut, Lease{}, err)
	return err
}

func (a *acquisition) tell(kind Kind, l Lease, err error) {
	if a.observer != nil {
		a.observer(Event{Kind: kind, Keys: a.keys, Owner: l.Owner, Fence: l.Fence, Wait: time.Since(a.start), Err: err})
	}
}

// notHeldError is why a lock was not acquired: all that err is, but not ErrOutcomeUnknown.
type notHeldError struct{ err error }

func (e *notHeldError) Error() string      { return e.err.Error() }
func (e *notHeldError) As(target any) bool { return errors.As(e.err, target) }
func (e *notHeldError) Is(target error) bool {
	return target != ErrOutcomeUnknown && errors.Is(e.err, target)
}
