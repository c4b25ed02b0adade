package locking

import (
	"context"
	"fmt"
	"sync"
	"time"
)

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

type holdKey struct{}

// Value lets trust find the hold in any ctx derived from fn's.
func (h *hold) Value(key any) any {
	if key == (holdKey{}) {
		return h
	}
	return h.Context.Value(key)
}

// newHold begins to count. The keeper's goroutine begins when the first renewal
// is due: most holds are over before that.
func newHold(ctx context.Context, s Store, o Options, lease Lease) *hold {
	h := &hold{store: s, opts: o, lease: lease, granted: time.Now(), quit: make(chan struct{})}
	h.opts.MaxHold = positive(o.MaxHold, time.Minute)
	h.opts.Poll = positive(o.Poll, time.Second)
	h.Context, h.cancel = context.WithCancelCause(ctx)
	h.outer, _ = ctx.Value(holdKey{}).(*hold)
	h.until = h.trustOf(lease, h.granted)
	h.ttl = h.until.Sub(h.granted)
	if !h.over(h.granted) {
		h.keeper.Add(1)
		h.first = time.AfterFunc(min(h.ttl/3, h.opts.MaxHold), h.keep)
	}
	return h
}

// trustOf is until when l, the answer to a request sent at from, may be trusted.
//
// A lease without Until has a connection instead, which is asked after: when it
// has not answered for three questions it is taken for dead. The Add puts any
// Until on the monotonic clock, should the store have lost that.
func (h *hold) trustOf(l Lease, from time.Time) time.Time {
	if l.Until.IsZero() && h.lease.Until.IsZero() {
		return from.Add(3 * h.opts.Poll)
	}
	return from.Add(l.Until.Sub(from))
}

// over looks at the clock, and ends the trust when its time has come.
func (h *hold) over(now time.Time) bool {
	switch {
	case h.lost != nil:
	case !now.Before(h.until) && h.failed != nil:
		h.lose(now, fmt.Errorf("%w: not renewed in time: %w", ErrLost, h.failed))
	case !now.Before(h.until):
		h.lose(now, ErrLost)
	case now.Sub(h.granted) >= h.opts.MaxHold:
		h.lose(h.until, ErrMaxHold) // still ours, but not for long
	}
	return h.lost != nil
}

// lose ends fn's ctx, and the trust at the given time, for good.
func (h *hold) lose(until time.Time, why error) {
	h.lost = why
	h.trust(until)
	h.cancel(why)
	h.tell(Lost, why)
}

// trust moves the end of the trust.
func (h *hold) trust(until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = until
}

// stop joins the keeper. Someone who slept past the end of the trust, together
// with his keeper, learns it here.
func (h *hold) stop() {
	close(h.quit)
	if h.first != nil && h.first.Stop() {
		h.keeper.Done() // it will not begin any more
	}
	h.keeper.Wait()
	now := time.Now()
	h.over(now)
	h.trust(now)
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
