package locking

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Acquire waits for the keys until ctx ends, or for Options.MaxWait: in the store's
// own queue if the store is a Waiter, else by retrying after Options.Backoff.
//
// When ctx ends first, the error matches ctx.Err() (ErrLost instead, if ctx is that of
// a Do whose lease is lost), and ErrBusy too if another holder had a key. After MaxWait
// the error matches ErrBusy, unless the store has not answered at all: that is not
// reported as busy. Any other error of the store is returned at once: the caller decides
// whether to continue without a lock service.
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
	acquire := s.TryAcquire
	if w, ok := s.(Waiter); ok {
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
		err = fmt.Errorf("locking: acquire %q: gave up after %v: %w", a.keys, waited, why)
	case a.waiting.Err() == nil: // the store's own error, which a retry does not help
		kind = Failed
	case a.busy != nil: // the error of a.waiting is not wrapped: the caller has time left
		err = fmt.Errorf("locking: acquire %q: gave up after %v: %w", a.keys, waited, ErrBusy)
	default:
		kind, err = Failed, fmt.Errorf("locking: acquire %q: no answer for %v: %v", a.keys, waited, err)
	}
	err = &notHeldError{err}
	a.notify(kind, Lease{}, err)
	return err
}

func (a *acquisition) notify(kind Kind, l Lease, err error) {
	if a.observer != nil {
		a.observer(Event{Kind: kind, Keys: a.keys, Owner: l.Owner, Fence: l.Fence, Wait: time.Since(a.start), Err: err})
	}
}

// notHeldError matches everything that its error matches, except ErrOutcomeUnknown.
type notHeldError struct{ error }

func (e *notHeldError) As(target any) bool { return errors.As(e.error, target) }
func (e *notHeldError) Is(target error) bool {
	return target != ErrOutcomeUnknown && errors.Is(e.error, target)
}

// Backoff is exponential with jitter. The zero value is usable.
type Backoff struct {
	Base time.Duration  // ceiling of the first wait; 0: 10 ms
	Max  time.Duration  // ceiling of the longest wait; 0: 500 ms
	Rand func() float64 // in [0, 1), safe for concurrent use; nil: math/rand/v2. Tests set their own.
}

// Wait returns how long to wait after attempt n, counted from 0: between half of a
// ceiling and the whole of it. The ceiling doubles with each attempt, up to Max.
//
// Half of the wait is fixed, so that no wait is close to zero, and half is random, so
// that clients that collided once do not collide again. Backoff is not fair: the longer
// a client has waited, the more rarely it retries. Keep Max near the time for which the
// lock is usually held, or use a Store that is a Waiter.
func (b Backoff) Wait(n int) time.Duration {
	base, most := positive(b.Base, 10*time.Millisecond), positive(b.Max, 500*time.Millisecond)
	ceiling := most
	if n < 62 && base <= most>>n { // base<<n could overflow
		ceiling = base << n
	}
	random := b.Rand
	if random == nil {
		random = rand.Float64
	}
	fixed := ceiling / 2
	return fixed + time.Duration(random()*float64(ceiling-fixed))
}

// positive returns d, or otherwise if d is not positive.
func positive(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// sleep waits for d. It returns false, at once, when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
