package locking

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// hold is a lease while fn runs: fn's ctx, and the keeper that renews.
//
// The keeper is one goroutine, and starts only when the first renewal is due:
// most holds are over before. It alone changes what is below, until stop has joined it.
type hold struct {
	context.Context // ends with the caller's, and with the trust
	cancel          context.CancelCauseFunc

	store   Store
	opts    Options
	granted time.Time
	outer   *hold // the hold that this one was acquired under

	lease Lease
	ttl   time.Duration // as far as it can be seen: from a request to the Until of its answer
	lost  error         // why the trust ended
	last  error         // of the renewals since the last good one

	mu    sync.Mutex
	until time.Time // the end of trust, renewals included

	first  *time.Timer // starts the keeper
	quit   chan struct{}
	keeper sync.WaitGroup
}

type holdKey struct{}

// Value lets Trust find the hold in any ctx derived from fn's.
func (h *hold) Value(key any) any {
	if key == (holdKey{}) {
		return h
	}
	return h.Context.Value(key)
}

func newHold(ctx context.Context, s Store, o Options, lease Lease) *hold {
	h := &hold{store: s, opts: o, lease: lease, granted: time.Now(), quit: make(chan struct{})}
	h.opts.MaxHold = positive(o.MaxHold, time.Minute)
	h.opts.Poll = positive(o.Poll, time.Second)
	h.Context, h.cancel = context.WithCancelCause(ctx)
	h.outer, _ = ctx.Value(holdKey{}).(*hold)
	h.until = h.trustIn(lease, h.granted)
	h.ttl = h.until.Sub(h.granted)
	if !h.over(h.granted) {
		h.keeper.Add(1)
		h.first = time.AfterFunc(min(h.ttl/3, h.opts.MaxHold), h.keep)
	}
	return h
}

// stop ends the renewal and joins the keeper. Whoever slept past the end of
// trust, together with his keeper, learns it here.
func (h *hold) stop() {
	close(h.quit)
	if h.first != nil && h.first.Stop() {
		h.keeper.Done() // it will not start any more
	}
	h.keeper.Wait()
	if h.lost == nil && !time.Now().Before(h.until) {
		h.lose(ErrLost)
	}
	h.cancel(nil)
}

// trustIn is how long l may be trusted after a request that was sent at from.
// Without an Until there is a connection to ask after: three questions without an
// answer, and it is taken for dead.
func (h *hold) trustIn(l Lease, from time.Time) time.Time {
	if l.Until.IsZero() && h.lease.Until.IsZero() {
		return from.Add(3 * h.opts.Poll)
	}
	return l.Until
}

// keep renews until fn returned or the lease is lost.
func (h *hold) keep() {
	defer h.keeper.Done()
	life, end := context.WithCancel(context.WithoutCancel(h.Context))
	var answers chan answer // of the renewal under way, if any
	defer func() {
		end()
		if answers != nil {
			<-answers
		}
	}()
	due := h.granted.Add(h.ttl / 3)
	wake := time.NewTimer(0)
	defer wake.Stop()
	for {
		now := time.Now()
		if h.over(now) {
			return
		}
		next := h.next()
		if answers == nil && !now.Before(due) {
			answers = h.renew(life, now)
		} else if answers == nil && due.Before(next) {
			next = due
		}
		wake.Reset(next.Sub(now))
		select {
		case <-h.quit:
			return
		case <-wake.C:
		case a := <-answers:
			answers = nil
			due = h.learn(a)
		}
	}
}

// over looks at the clock, and ends the trust when its time has come.
func (h *hold) over(now time.Time) bool {
	switch {
	case h.lost != nil:
	case !now.Before(h.until):
		h.lose(h.expired())
	case now.Sub(h.granted) >= h.opts.MaxHold:
		h.lose(ErrMaxHold)
	}
	return h.lost != nil
}

// next is when over may be true without any answer.
func (h *hold) next() time.Time {
	end := h.granted.Add(h.opts.MaxHold)
	if h.until.Before(end) {
		return h.until
	}
	return end
}

func (h *hold) expired() error {
	if h.last != nil {
		return fmt.Errorf("%w: not renewed in time: %w", ErrLost, h.last)
	}
	return ErrLost
}

// lose ends the trust, for good.
func (h *hold) lose(why error) {
	h.lost = why
	h.cancel(why)
	h.tell(Lost, why)
}

// answer is what came of a renewal.
type answer struct {
	lease Lease
	err   error
	sent  time.Time
}

// renew asks the store. Each attempt has a third of the TTL, and never more than
// the trust that is left: an answer after that would be of no use.
func (h *hold) renew(life context.Context, now time.Time) chan answer {
	ctx, cancel := context.WithTimeout(life, min(h.ttl/3, h.until.Sub(now)))
	answers := make(chan answer, 1)
	go func() {
		defer cancel()
		lease, err := h.store.Renew(ctx, h.lease)
		answers <- answer{lease, err, now}
	}()
	return answers
}

// learn takes an answer in, and says when to ask again: at the usual pace after
// a renewal that moved the trust, else soon.
func (h *hold) learn(a answer) (due time.Time) {
	now := time.Now()
	soon := now.Add(h.ttl / 12)
	switch {
	case h.over(now): // trust that ended has ended, whatever the answer says
	case errors.Is(a.err, ErrLost):
		h.lose(a.err)
	case a.err != nil:
		h.last = a.err
		h.tell(Failed, a.err)
	default:
		h.last = nil
		until := h.trustIn(a.lease, a.sent)
		h.tell(Renewed, nil)
		if !until.After(h.until) {
			return soon
		}
		h.ttl = max(h.ttl, until.Sub(a.sent))
		h.lease.Until = a.lease.Until
		h.mu.Lock()
		h.until = until
		h.mu.Unlock()
		return a.sent.Add(h.ttl / 3)
	}
	return soon
}

func (h *hold) tell(kind Kind, err error) {
	if h.opts.Observer != nil {
		h.opts.Observer(Event{
			Kind: kind, Keys: h.lease.Keys, Owner: h.lease.Owner, Fence: h.lease.Fence,
			Held: time.Since(h.granted), Err: err,
		})
	}
}
