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
// whether to go on without a lock service is not for a lock to decide. Whatever the
// error, nothing is held.
//
// The lease is the caller's to renew and to release. Do does both.
func Acquire(ctx context.Context, s Store, o Options, keys ...string) (Lease, error) {
	if err := CheckKeys(keys); err != nil {
		return Lease{}, err
	}
	a := acquisition{observer: o.Observer, keys: keys, start: time.Now()}
	if w, ok := s.(Waiter); ok {
		a.tell(Attempt, Lease{}, nil)
		lease, err := w.Acquire(ctx, keys...)
		if err != nil {
			return Lease{}, a.giveUp(ctx, err)
		}
		a.tell(Acquired, lease, nil)
		return lease, nil
	}
	return a.poll(ctx, s, o.Backoff)
}

// acquisition is one Acquire under way.
type acquisition struct {
	observer Observer
	keys     []string
	start    time.Time
}

// poll asks until it is granted, refused for another reason than busy, or ctx ends.
func (a *acquisition) poll(ctx context.Context, s Store, b Backoff) (Lease, error) {
	var busy error
	for n := 0; ctx.Err() == nil; n++ {
		a.tell(Attempt, Lease{}, nil)
		lease, err := s.TryAcquire(ctx, a.keys...)
		if err == nil {
			a.tell(Acquired, lease, nil)
			return lease, nil
		}
		if !errors.Is(err, ErrBusy) {
			return Lease{}, a.giveUp(ctx, errors.Join(busy, err))
		}
		busy = err
		a.tell(Busy, Lease{}, err)
		sleep(ctx, b.Wait(n))
	}
	return Lease{}, a.giveUp(ctx, busy)
}

// giveUp is the end without a lease.
func (a *acquisition) giveUp(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		a.tell(Failed, Lease{}, err)
		return notHeld{err}
	}
	switch why := ended(ctx); {
	case err == nil:
		err = why
	case !errors.Is(err, why):
		err = fmt.Errorf("%w: %w", err, why)
	}
	a.tell(TimedOut, Lease{}, err)
	return notHeld{fmt.Errorf("locking: acquire %q: given up after %v: %w", a.keys, time.Since(a.start), err)}
}

func (a *acquisition) tell(kind Kind, l Lease, err error) {
	if a.observer != nil {
		a.observer(Event{Kind: kind, Keys: a.keys, Owner: l.Owner, Fence: l.Fence, Wait: time.Since(a.start), Err: err})
	}
}
