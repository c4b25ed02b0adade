// SPDX-License-Identifier: MIT

package locking

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Acquire waits for the keys until ctx ends, or for Options.MaxWait: in the store's
// own queue if the store is a Waiter, else by retrying after Options.Backoff. With
// Options.NoWait it tries once.
//
// When ctx ends first, the error matches ctx.Err() (ErrLost instead, if ctx is that of a Do whose lease is lost), and
// ErrBusy too if another holder had a key, or another request of this process waited for it in front. After MaxWait the
// error matches ErrBusy, unless the store has not answered at all: that is not reported as busy. Any other error of the
// store is returned at once: the caller decides whether to continue without a lock service. If ctx is that of a Do which
// holds one of the keys, the error is ErrNested, at once.
//
// After an error nothing is held. The error never matches ErrOutcomeUnknown, which would
// mean that the caller's own work may have happened. A request without an answer may
// have taken the lock; the store removes it.
//
// The caller renews and releases the lease. Do does both.
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
		return Lease{}, a.fail(nil)
	}
	if err := Nested(ctx, s, keys...); err != nil {
		return Lease{}, a.fail(err)
	}
	acquire := s.TryAcquire
	if w, ok := s.(Waiter); ok && !o.NoWait {
		acquire = w.Acquire
	}
	for n := 0; ; n++ {
		a.notify(Attempt, Lease{}, nil)
		lease, err := acquire(a.waiting, keys...)
		if err == nil {
			a.notify(Acquired, lease, nil)
			return lease, nil
		}
		if !errors.Is(err, ErrBusy) {
			return Lease{}, a.fail(err)
		}
		a.busy = err
		a.notify(Busy, Lease{}, err)
		if o.NoWait {
			return Lease{}, a.describe(err)
		}
		if !sleep(a.waiting, o.Backoff.Wait(n)) {
			return Lease{}, a.fail(nil)
		}
	}
}

// acquisition is one Acquire under way.
type acquisition struct {
	ctx, waiting context.Context // the caller's, and the same bounded by MaxWait
	observer     Observer
	keys         []string
	start        time.Time
	busy         error // the store's last ErrBusy
}

// fail returns the error of an Acquire that got no lease. err is what the store
// returned after its last ErrBusy; nil: the wait ended between two requests.
func (a *acquisition) fail(err error) error {
	kind, waited := TimedOut, time.Since(a.start).Round(time.Millisecond)
	switch {
	case a.ctx.Err() != nil:
		why := ended(a.ctx)
		for _, got := range []error{err, a.busy} {
			switch {
			case got == nil:
			case errors.Is(got, why):
				why = got
			default:
				why = fmt.Errorf("%w: %w", got, why)
			}
		}
		err = fmt.Errorf("%w (gave up after %v)", why, waited)
	case a.waiting.Err() == nil: // the store's own error, which a retry does not help
		kind = Failed
	case a.busy != nil: // the error of a.waiting is not wrapped: the caller has time left
		err = Like(ErrBusy, fmt.Errorf("%v (gave up after %v)", a.busy, waited))
	default:
		kind, err = Failed, fmt.Errorf("%v (gave up after %v)", err, waited)
	}
	err = a.describe(err)
	a.notify(kind, Lease{}, err)
	return err
}

// describe adds to an error what failed, unless the store has done so, and denies that the outcome is unknown.
func (a *acquisition) describe(err error) error {
	if what := fmt.Sprintf("acquire %q", a.keys); !strings.Contains(err.Error(), what) {
		err = fmt.Errorf("locking: %s: %w", what, err)
	}
	return &notHeldError{err}
}

func (a *acquisition) notify(kind Kind, l Lease, err error) {
	if a.observer != nil {
		a.observer(Event{Ctx: a.ctx, Kind: kind, Keys: a.keys, Owner: l.Owner, Fence: l.Fence, Wait: time.Since(a.start), Err: err})
	}
}

// notHeldError matches everything that its error matches, except ErrOutcomeUnknown, and its text does not have that either.
type notHeldError struct{ error }

func (e *notHeldError) Error() string {
	return strings.ReplaceAll(e.error.Error(), ErrOutcomeUnknown.Error(), "no answer, and what the request may have taken is removed")
}

func (e *notHeldError) As(target any) bool { return errors.As(e.error, target) }
func (e *notHeldError) Is(target error) bool {
	return target != ErrOutcomeUnknown && errors.Is(e.error, target)
}

// sleep waits for d. It returns false, at once, when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
