package locking

import (
	"context"
	"errors"
	"fmt"
	"time"
)

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

// answer is the result of a renewal.
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

// learn applies an answer, and returns when the next request is due: a third of
// the TTL after this one, or a twelfth if the answer did not extend the lease.
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
	h.setUntil(until)
	return a.sent.Add(h.ttl / 3)
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
	h.setUntil(until)
	h.cancel(why)
	h.tell(Lost, why)
}

// setUntil moves the end of the trust.
func (h *hold) setUntil(until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = until
}
