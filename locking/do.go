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
// The lease is renewed while fn runs, also after the caller's ctx ended: fn may
// be in the middle of a write. When the lease is lost, or cannot be trusted any
// more, or was held for MaxHold, fn's ctx is cancelled, before another holder can
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

// keep renews until fn has returned or the trust is over. Each wait is for the
// first of four: fn's end, the answer under way, the next thing to do, the end of
// the trust. The requests run beside it, so that a Store that does not come back
// cannot keep the trust from ending in time.
func (h *hold) keep() {
	defer h.keeper.Done()
	life, end := context.WithCancel(context.WithoutCancel(h.Context)) // fn may outlive the caller's ctx
	var asked chan answer                                             // nil: no request is under way
	defer func() {
		end()
		if asked != nil {
			<-asked
		}
	}()
	due := h.granted.Add(h.ttl / 3)
	wake := time.NewTimer(0)
	defer wake.Stop()
	for !h.over(time.Now()) {
		if asked == nil && !time.Now().Before(due) {
			asked = h.renew(life)
		}
		wake.Reset(time.Until(h.next(due, asked != nil)))
		select {
		case <-h.quit:
			return
		case <-wake.C:
		case a := <-asked:
			asked, due = nil, h.learn(a)
		}
	}
}

// next is when there is something to do if no answer comes.
func (h *hold) next(due time.Time, asked bool) time.Time {
	next := h.granted.Add(h.opts.MaxHold)
	if h.until.Before(next) {
		next = h.until
	}
	if !asked && due.Before(next) {
		next = due
	}
	return next
}

// answer is what came of a renewal.
type answer struct {
	sent  time.Time
	lease Lease
	err   error
}

// renew asks the store. An attempt has a third of the TTL, so that a lost packet
// does not cost all the trust, and at most the trust that is left: later, the
// answer would be of no use.
func (h *hold) renew(life context.Context) chan answer {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(life, min(h.ttl/3, h.until.Sub(sent)))
	asked := make(chan answer, 1)
	go func() {
		defer cancel()
		lease, err := h.store.Renew(ctx, h.lease)
		asked <- answer{sent, lease, err}
	}()
	return asked
}

// learn takes an answer in, and says when the next request is due: a third of
// the TTL after this one, or a twelfth if it brought nothing.
func (h *hold) learn(a answer) (due time.Time) {
	soon := a.sent.Add(h.ttl / 12)
	now := time.Now()
	switch {
	case h.over(now): // trust that has ended stays ended, whatever the answer says
		return soon
	case errors.Is(a.err, ErrLost):
		h.lose(now, a.err)
		return soon
	case a.err != nil:
		h.failed = a.err
		h.tell(Failed, a.err)
		return soon
	}
	defer h.tell(Renewed, nil)
	h.failed = nil
	until := h.trustOf(a.lease, a.sent)
	if !until.After(h.until) {
		return soon // a store that renews by itself, and did not lately
	}
	h.ttl = max(h.ttl, until.Sub(a.sent))
	h.lease.Until = a.lease.Until
	h.trust(until)
	return a.sent.Add(h.ttl / 3)
}

// trust returns until when the leases that ctx works under may be trusted: the
// earliest of them, renewals up to now included. False: ctx does not come from Do.
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

// Detach returns a ctx for a write that must not be cut in half: neither the
// client's leaving nor the loss of the lease cancels it. It ends after limit,
// and no later than the trust at the time of the call.
//
// Cancelling a write does not undo it: what was sent may still happen, and its
// answer is not received. So the time to give up is before the write, which is
// when Detach returns an error: ctx has ended (the error matches ctx.Err() and
// its cause) or the trust is over (ErrLost). Then nothing was sent, and leaving is free.
//
// A ctx that does not come from Do is bounded by limit alone.
func Detach(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc, error) {
	if ctx.Err() != nil {
		return nil, nil, gone(ctx)
	}
	now := time.Now()
	end := now.Add(limit)
	if until, held := trust(ctx); held && until.Before(end) {
		if !now.Before(until) { // the keeper was asleep as we were
			return nil, nil, ErrLost
		}
		end = until
	}
	detached, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	return detached, cancel, nil
}

// Commit runs write on the ctx of Detach. If that ctx ends before write does,
// the error matches ErrOutcomeUnknown, so that Do leaves the lease to run out.
// Any other error is write's to classify: a connection that broke under a COMMIT
// is ErrOutcomeUnknown as well, a refusal by the server is not.
func Commit(ctx context.Context, limit time.Duration, write func(context.Context) error) error {
	detached, cancel, err := Detach(ctx, limit)
	if err != nil {
		return err
	}
	defer cancel()
	err = write(detached)
	if err != nil && detached.Err() != nil && !errors.Is(err, ErrOutcomeUnknown) {
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return err
}
