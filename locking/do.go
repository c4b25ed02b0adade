package locking

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Options of Acquire and Do. The zero value is usable.
type Options struct {
	Backoff        Backoff       // between attempts, for a Store that is no Waiter
	MaxWait        time.Duration // for the keys; 0: as long as ctx
	MaxHold        time.Duration // ends renewal and cancels fn; 0: one minute
	Poll           time.Duration // how often a lease without Until is asked after; 0: one second
	ReleaseTimeout time.Duration // limit of the detached release; 0: one second
	Observer       Observer      // nil costs nothing
}

// Do runs fn while it holds the keys, and returns what fn returned.
//
// The lease is renewed while fn runs, also after the caller's ctx ended: fn may
// be in the middle of a write. When the lease is lost, or cannot be trusted any
// more, or was held for MaxHold, fn's ctx is cancelled, before anyone else can
// have the keys, and context.Cause tells why (ErrLost, ErrMaxHold). fn is
// expected to return then; Do waits for it however long that takes, and releases
// after it.
//
//   - fn's nil is nil, whatever became of the lease: what fn did is done.
//   - fn's error is returned as it is; if the lease was lost, joined with ErrLost.
//   - An error of fn that matches ErrOutcomeUnknown leaves the lease to run out:
//     its write may still be on the way. fn has to say so: to a caller, an error
//     that matches ErrLost, and not that, is an attempt that did nothing.
//   - A panic, or runtime.Goexit, in fn releases the lease and goes on.
//   - If fn did not run, the error is that of Acquire, or ErrLost for a grant that
//     came too late to be used. It never matches ErrOutcomeUnknown.
//
// A write that must not be cut in half when ctx ends goes through Commit or
// Detach. And since fn may run on for a while without the lock, being paused or
// not looking at ctx, what it writes to is guarded by the Fence, or by a lock of
// its own.
func Do(ctx context.Context, s Store, o Options, keys []string, fn func(context.Context, Lease) error) (err error) {
	lease, err := Acquire(ctx, s, o, keys...)
	if err != nil {
		return err
	}
	h := newHold(ctx, s, o, lease)
	defer func() { err = h.end(err) }() // no recover: a panic keeps its value and its stack
	if h.Err() != nil {
		return gone(h) // the grant came too late, for the caller or for itself
	}
	return fn(h, lease)
}

// end is everything after fn: in this order, so that nothing renews what is released.
func (h *hold) end(result error) error {
	h.stop()
	if err := h.release(result); h.lost == nil && errors.Is(err, ErrLost) {
		h.lost = err
	}
	if result == nil || h.lost == nil || errors.Is(result, h.lost) {
		return result
	}
	return fmt.Errorf("%w; %w", result, h.lost)
}

// release gives the keys back, on a ctx that outlives the caller's.
func (h *hold) release(result error) error {
	if errors.Is(result, ErrOutcomeUnknown) {
		h.tell(Left, result)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.Context), positive(h.opts.ReleaseTimeout, time.Second))
	defer cancel()
	err := h.store.Release(ctx, h.lease)
	switch {
	case err == nil:
		h.tell(Released, nil)
		return nil
	case errors.Is(err, ErrLost) && h.lost == nil:
		h.tell(Lost, err)
	}
	h.tell(Left, err)
	return err
}
