package locking

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
// The lease is renewed while fn runs, also after the caller's ctx ended: fn may be
// in the middle of a write. When the lease is lost, or was held for MaxHold, fn's ctx
// is cancelled, before another holder can have the keys, and context.Cause tells why
// (ErrLost, ErrMaxHold). Do waits for fn however long it takes, and then releases.
//
//   - fn's nil is nil, whatever became of the lease: what fn did is done.
//   - fn's error is returned as it is; if the lease was lost, joined with ErrLost.
//   - An error of fn that matches ErrOutcomeUnknown leaves the lease to run out:
//     its write may still be on the way. ErrLost without it is an attempt that did
//     nothing.
//   - A panic, or runtime.Goexit, in fn releases the lease and goes on.
//   - If fn did not run, the error is that of Acquire, or ErrLost for a grant that
//     came too late to be used.
//
// A write that must not be cut in half when ctx ends goes through Commit or Detach.
// What fn writes to has a guard of its own: fn may be paused beyond the lease.
func Do(ctx context.Context, s Store, o Options, keys []string, fn func(context.Context, Lease) error) (err error) {
	lease, err := Acquire(ctx, s, o, keys...)
	if err != nil {
		return err
	}
	h := newHold(ctx, s, o, lease)
	defer func() { err = h.end(err) }() // no recover: a panic keeps its value and its stack
	if h.Err() != nil {
		return ended(h) // the grant came too late, for the caller or for itself
	}
	return fn(h, lease)
}

// end is everything after fn: in this order, so that nothing renews what is released.
func (h *hold) end(result error) error {
	h.stop()
	h.release(result)
	if result == nil || h.lost == nil || errors.Is(result, h.lost) {
		return result
	}
	return fmt.Errorf("%w; %w", result, h.lost)
}

// release gives the keys back, on a ctx that outlives the caller's.
func (h *hold) release(result error) {
	if errors.Is(result, ErrOutcomeUnknown) {
		h.tell(Left, result)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.Context), positive(h.opts.ReleaseTimeout, time.Second))
	defer cancel()
	err := h.store.Release(ctx, h.lease)
	if errors.Is(err, ErrLost) && h.lost == nil {
		h.lost = err
		h.tell(Lost, err)
	}
	if err != nil {
		h.tell(Left, err)
	} else {
		h.tell(Released, nil)
	}
}

// hold is a lease while fn runs: fn's ctx, and what the keeper knows.
//
// It changes in one goroutine at a time: newHold, then the keeper, then, after
// stop has joined the keeper, end. Only until is read by others meanwhile.
type hold struct {
	context.Context // ends with the caller's, and with the trust
	cancel          context.CancelCauseFunc

	store   Store
	opts    Options
	granted time.Time
	outer   *hold // under which this one was acquired

	lease  Lease
	ttl    time.Duration // as far as can be seen: from a request to the Until of its answer
	lost   error         // why the trust ended
	failed error         // the last renewal; nil if it was good

	mu    sync.Mutex
	until time.Time // end of the trust, renewals included

	first  *time.Timer // starts the keeper
	quit   chan struct{}
	keeper sync.WaitGroup
}

// holdKey is under which trust finds the hold in any ctx derived from fn's.
type holdKey struct{}

// newHold begins to count. The keeper's goroutine begins when the first renewal
// is due: most holds are over before that.
func newHold(ctx context.Context, s Store, o Options, lease Lease) *hold {
	h := &hold{store: s, opts: o, lease: lease, granted: time.Now(), quit: make(chan struct{})}
	h.opts.MaxHold = positive(o.MaxHold, time.Minute)
	h.opts.Poll = positive(o.Poll, time.Second)
	h.Context, h.cancel = context.WithCancelCause(context.WithValue(ctx, holdKey{}, h))
	h.outer, _ = ctx.Value(holdKey{}).(*hold)
	h.until = h.trustOf(lease, h.granted)
	h.ttl = h.until.Sub(h.granted)
	if !h.over(h.granted) {
		h.keeper.Add(1)
		h.first = time.AfterFunc(min(h.ttl/3, h.opts.MaxHold), h.keep)
	}
	return h
}

// stop joins the keeper. A holder that slept past the end of the trust, together
// with its keeper, learns of it here.
func (h *hold) stop() {
	close(h.quit)
	if h.first != nil && h.first.Stop() {
		h.keeper.Done() // it will not begin any more
	}
	h.keeper.Wait()
	now := time.Now()
	h.over(now)
	h.setUntil(now)
	h.cancel(nil)
}

func (h *hold) tell(kind Kind, err error) {
	if h.opts.Observer != nil {
		h.opts.Observer(Event{
			Kind: kind, Keys: h.lease.Keys, Owner: h.lease.Owner, Fence: h.lease.Fence,
			Held: time.Since(h.granted), Err: err,
		})
	}
}
