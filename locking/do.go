// SPDX-License-Identifier: MIT

package locking

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"time"
)

// Options of Acquire and Do. The zero value is usable.
type Options struct {
	Backoff  Backoff       // between attempts, for a Store that is no Waiter
	MaxWait  time.Duration // for the keys; 0: as long as ctx
	NoWait   bool          // one attempt, and ErrBusy if another holder has a key
	MaxHold  time.Duration // ends renewal and cancels fn; 0: DefaultMaxHold; NoLimit: neither, however long fn runs
	Observer Observer      // nil costs nothing
}

// The MaxHold of Options without one, and that of work that may take any time: if such work hangs, its keys stay taken
// as long as its process lives.
const (
	DefaultMaxHold               = time.Minute
	NoLimit        time.Duration = math.MaxInt64
)

const (
	renewEvery     = time.Second // of a lease without Until
	releaseTimeout = time.Second // of the detached release
)

// Do runs fn while it holds the keys, and returns what fn returned.
//
// The lease is renewed while fn runs, even after the caller's ctx has ended: fn may be
// in the middle of a write. When the lease is lost, or was held for MaxHold, fn's ctx is
// cancelled before another holder can get the keys, and context.Cause returns the reason
// (ErrLost, ErrMaxHold). Do waits for fn however long it takes, and then releases.
//
//   - If fn returns nil, so does Do, whatever happened to the lease: what fn did is done.
//   - An error of fn is returned unchanged, or joined with ErrLost if the lease was lost.
//   - If fn's error matches ErrOutcomeUnknown, the lease is not released but expires:
//     fn's write may still be under way. A lease without a TTL is released all the same:
//     nothing else would free its keys. ErrLost without ErrOutcomeUnknown means that
//     the attempt did nothing.
//   - A panic, or runtime.Goexit, in fn releases the lease and continues.
//   - If fn did not run, the error is that of Acquire, or ErrLost for a grant that
//     came too late to be used.
//
// A write that must not be interrupted when ctx ends goes through Commit or Detach.
// The resource that fn writes to needs a guard of its own: fn may be paused beyond the lease.
func Do(ctx context.Context, s Store, o Options, keys []string, fn func(context.Context, Lease) error) (err error) {
	lease, err := Acquire(ctx, s, o, keys...)
	if err != nil {
		return err
	}
	h := newHold(ctx, s, o, lease)
	defer func() { err = h.end(err) }() // no recover: a panic keeps its value and its stack
	if h.Err() != nil {
		return ended(h) // the grant came after the end of the caller's ctx, or of its own trust
	}
	return fn(h, lease)
}

// end stops the renewals before it releases, so that nothing renews a released lease.
func (h *hold) end(result error) error {
	h.stop()
	h.release(result)
	if result == nil || h.lost == nil || errors.Is(result, h.lost) {
		return result
	}
	return fmt.Errorf("%w; %w", result, h.lost)
}

// release frees the keys, on a ctx that outlives the caller's.
func (h *hold) release(result error) {
	if errors.Is(result, ErrOutcomeUnknown) && !h.lease.Until.IsZero() {
		h.notify(Left, 0, result)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.Context), releaseTimeout)
	defer cancel()
	err := h.store.Release(ctx, h.lease)
	if errors.Is(err, ErrLost) && h.lost == nil {
		h.lost = err
		h.notify(Lost, 0, err)
	}
	if err != nil {
		h.notify(Left, 0, err)
	} else {
		h.notify(Released, 0, nil)
	}
}

// hold is a lease while fn runs: fn's ctx, and the state of the keeper.
//
// One goroutine at a time changes it: newHold, then the keeper, then end, after stop
// has joined the keeper. Other goroutines read only until, the Store and the keys.
type hold struct {
	context.Context // ends with the caller's, and with the trust
	cancel          context.CancelCauseFunc

	store   Store
	opts    Options
	granted time.Time
	outer   *hold // the hold under which this one was acquired

	lease  Lease
	ttl    time.Duration // as observed: from a request to the Until of its answer
	lost   error         // why the trust ended
	failed error         // of the last renewal; nil if it succeeded

	mu    sync.Mutex
	until time.Time // end of the trust, renewals included

	first  *time.Timer // starts the keeper
	quit   chan struct{}
	keeper sync.WaitGroup
}

// holdKey is the key under which trust finds the hold in any ctx derived from fn's.
type holdKey struct{}

// newHold starts the trust. The keeper's goroutine starts when the first renewal
// is due: most holds are over before that.
func newHold(ctx context.Context, s Store, o Options, lease Lease) *hold {
	h := &hold{store: s, opts: o, lease: lease, granted: time.Now(), quit: make(chan struct{})}
	h.opts.MaxHold = positive(o.MaxHold, DefaultMaxHold)
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

// trustOf returns until when l, the answer to a request sent at from, may be trusted.
//
// A lease without Until depends on a connection instead: it is renewed every renewEvery, and
// taken for dead when three of them have passed without an answer. The Add puts any Until on
// the monotonic clock, in case the store has stripped its reading.
func (h *hold) trustOf(l Lease, from time.Time) time.Time {
	if l.Until.IsZero() && h.lease.Until.IsZero() {
		return from.Add(3 * renewEvery)
	}
	return from.Add(l.Until.Sub(from))
}

// over ends the trust if its time has come, and reports whether it is over.
func (h *hold) over(now time.Time) bool {
	switch {
	case h.lost != nil:
	case !now.Before(h.until) && h.failed != nil:
		h.lose(now, fmt.Errorf("%w: not renewed in time: %w", ErrLost, h.failed))
	case !now.Before(h.until):
		h.lose(now, ErrLost)
	case now.Sub(h.granted) >= h.opts.MaxHold:
		// It is still held until then, but not renewed.
		h.lose(h.until, fmt.Errorf("%w, which is %v: set another one, or NoLimit", ErrMaxHold, h.opts.MaxHold))
	}
	return h.lost != nil
}

// lose cancels fn's ctx with why, and sets the final end of the trust.
func (h *hold) lose(until time.Time, why error) {
	h.lost = why
	h.setUntil(until)
	h.cancel(why)
	h.notify(Lost, 0, why)
}

// setUntil moves the end of the trust.
func (h *hold) setUntil(until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = until
}

// stop joins the keeper. When the process was paused past the end of the trust, the
// keeper included, the loss is detected here.
func (h *hold) stop() {
	close(h.quit)
	if h.first != nil && h.first.Stop() {
		h.keeper.Done() // the keeper will not start
	}
	h.keeper.Wait()
	now := time.Now()
	h.over(now)
	h.setUntil(now)
	h.cancel(nil)
}

// Nested returns ErrNested, with the key, if ctx is that of a Do, or derived from it, which holds one of the keys in s. A
// request for it would wait for its own holder, as a rule until MaxHold, and report that another holder has the key.
//
// Any goroutine that has fn's ctx is refused, although fn may not wait for it: such a goroutine takes the key with a ctx from
// outside of Do, or is given the lease. Only the same Store is recognized, not another one with the same
// keys. A Store that grants a key to several holders at once has a method Shared, without arguments, that returns true: it
// refuses none.
func Nested(ctx context.Context, s Store, keys ...string) error {
	h, _ := ctx.Value(holdKey{}).(*hold)
	if h == nil {
		return nil
	}
	if s, ok := s.(interface{ Shared() bool }); ok && s.Shared() {
		return nil
	}
	for ; h != nil; h = h.outer {
		for _, key := range keys {
			if h.holds(s, key) {
				return fmt.Errorf("%w: %q", ErrNested, key)
			}
		}
	}
	return nil
}

// holds reports whether key is held in s. A ctx may outlive its hold.
func (h *hold) holds(s Store, key string) bool {
	h.mu.Lock()
	until := h.until
	h.mu.Unlock()
	return reflect.ValueOf(s).Comparable() && h.store == s && slices.Contains(h.lease.Keys, key) && time.Now().Before(until)
}

// trust returns the earliest end of trust among the leases that ctx works under,
// with all renewals up to now. False: ctx does not come from Do.
func trust(ctx context.Context) (until time.Time, held bool) {
	h, _ := ctx.Value(holdKey{}).(*hold)
	for ; h != nil; h = h.outer {
		h.mu.Lock()
		mine := h.until
		h.mu.Unlock()
		if !held || mine.Before(until) {
			until, held = mine, true
		}
	}
	return until, held
}

// Detach returns a ctx for a write that must not be interrupted: neither a client that
// leaves nor the loss of the lease cancels it. It ends after limit, and no later than
// the trust at the time of the call.
//
// Cancelling a write does not undo it, so Detach is the last point at which to abandon
// an operation. It returns an error if ctx has ended (the error matches ctx.Err() and
// its cause) or the trust is over (ErrLost). A ctx that does not come from Do is
// bounded by limit alone.
func Detach(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc, error) {
	if ctx.Err() != nil {
		return nil, nil, ended(ctx)
	}
	now := time.Now()
	end := now.Add(limit)
	if until, held := trust(ctx); held && until.Before(end) {
		if !now.Before(until) { // the process was paused, the keeper included
			return nil, nil, ErrLost
		}
		end = until
	}
	detached, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	return detached, cancel, nil
}
