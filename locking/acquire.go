package locking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Acquire waits for the keys until ctx ends, or for Options.MaxWait: in the
// store's own queue if it is a Waiter, else by asking again after Options.Backoff.
//
// When ctx ends first, the error matches ctx.Err(), and ErrBusy too if a busy
// key is what it waited for. After MaxWait it matches ErrBusy; unless the store
// has not answered at all, which is not called busy. Any other error of the
// store is returned at once: whether to go on without a lock service is not for
// a lock to decide.
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
		waiting, cancel := context.WithTimeout(ctx, o.MaxWait)
		defer cancel()
		a.waiting = waiting
	}
	if ctx.Err() != nil {
		return Lease{}, a.giveUp(nil, nil)
	}
	if w, ok := s.(Waiter); ok {
		return a.queue(w)
	}
	return a.poll(s, o.Backoff)
}

// acquisition is one Acquire under way.
type acquisition struct {
	ctx, waiting context.Context // the caller's, and that within MaxWait
	observer     Observer
	keys         []string
	start        time.Time
}

// queue leaves the waiting to the store.
func (a *acquisition) queue(w Waiter) (Lease, error) {
	a.tell(Attempt, Lease{}, nil)
	lease, err := w.Acquire(a.waiting, a.keys...)
	if err != nil {
		return Lease{}, a.giveUp(nil, err)
	}
	a.tell(Acquired, lease, nil)
	return lease, nil
}

// poll asks until it is granted, refused for another reason than busy, or the wait is over.
func (a *acquisition) poll(s Store, b Backoff) (Lease, error) {
	var busy error
	for n := 0; ; n++ {
		a.tell(Attempt, Lease{}, nil)
		lease, err := s.TryAcquire(a.waiting, a.keys...)
		if err == nil {
			a.tell(Acquired, lease, nil)
			return lease, nil
		}
		if !errors.Is(err, ErrBusy) {
			return Lease{}, a.giveUp(busy, err)
		}
		busy = err
		a.tell(Busy, Lease{}, err)
		if !sleep(a.waiting, b.Wait(n)) {
			return Lease{}, a.giveUp(busy, nil)
		}
	}
}

// giveUp is the end without a lease. busy is the store's last answer, if it was
// that, and err what came after it: the store's own fault, or a request cut short.
func (a *acquisition) giveUp(busy, err error) error {
	if busy == nil && errors.Is(err, ErrBusy) {
		busy, err = err, nil // of a Waiter, whose error also matches ctx.Err()
	}
	waited := time.Since(a.start).Round(time.Millisecond)
	kind, e := TimedOut, &notHeldError{}
	switch {
	case a.ctx.Err() != nil:
		e.err = fmt.Errorf("locking: acquire %q: gave up after %v: %w", a.keys, waited, because(busy, err, ended(a.ctx)))
	case a.waiting.Err() == nil:
		kind, e.err = Failed, cmp.Or(err, busy) // asking again would be of no use
	case busy != nil:
		e.ours, e.err = true, fmt.Errorf("locking: acquire %q: gave up after %v: %w", a.keys, waited, busy)
	default:
		kind, e.ours, e.err = Failed, true, fmt.Errorf("locking: acquire %q: no answer for %v: %w", a.keys, waited, err)
	}
	a.tell(kind, Lease{}, e)
	return e
}

// because puts together why ctx ended, and under what: none twice.
func because(busy, err, why error) error {
	switch {
	case err != nil && errors.Is(err, why):
		why = err
	case err != nil:
		why = fmt.Errorf("%w: %w", err, why)
	}
	if busy != nil && !errors.Is(busy, why) {
		return fmt.Errorf("%w: %w", busy, why)
	}
	return cmp.Or(busy, why)
}

func (a *acquisition) tell(kind Kind, l Lease, err error) {
	if a.observer != nil {
		a.observer(Event{Kind: kind, Keys: a.keys, Owner: l.Owner, Fence: l.Fence, Wait: time.Since(a.start), Err: err})
	}
}

// notHeldError is why a lock was not acquired: all that err is, but never
// ErrOutcomeUnknown, and not the end of a ctx if that was ours and not the caller's.
type notHeldError struct {
	err  error
	ours bool
}

func (e *notHeldError) Error() string      { return e.err.Error() }
func (e *notHeldError) As(target any) bool { return errors.As(e.err, target) }
func (e *notHeldError) Is(target error) bool {
	if target == ErrOutcomeUnknown || e.ours && target == context.DeadlineExceeded {
		return false
	}
	return errors.Is(e.err, target)
}

// Backoff is exponential with jitter. The zero value is usable.
type Backoff struct {
	Base time.Duration  // ceiling of the first wait; 0: 10 ms
	Max  time.Duration  // ceiling of the longest wait; 0: 500 ms
	Rand func() float64 // in [0, 1), safe for concurrent use; nil: random. A test gives its own.
}

// Wait returns how long to wait after attempt n, counted from 0: between one
// half of a ceiling and all of it, where the ceiling doubles up to Max.
//
// Half of it is fixed, so that no client hammers the store by bad luck, and half is
// random, so that clients that collided once do not collide again. It is not fair:
// the longer a client has waited, the more rarely it asks. Keep Max near the
// time for which the lock is usually held, or use a Store that is a Waiter.
func (b Backoff) Wait(n int) time.Duration {
	base, most := positive(b.Base, 10*time.Millisecond), positive(b.Max, 500*time.Millisecond)
	ceiling := most
	if n < 62 && base <= most>>n { // not base<<n, which overflows
		ceiling = base << n
	}
	random := b.Rand
	if random == nil {
		random = rand.Float64
	}
	fixed := ceiling / 2
	return fixed + time.Duration(random()*float64(ceiling-fixed))
}

// positive is d, or otherwise if d says nothing.
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
