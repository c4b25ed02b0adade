// SPDX-License-Identifier: MIT

package locking

import (
	"context"
	"errors"
	"time"
)

// keep renews until fn has returned or the trust is over. Each wait ends with the
// first of four events: fn returns, the pending answer arrives, the next renewal is
// due, the trust ends. Renew runs in a goroutine of its own, so that a Store that does
// not return cannot keep the trust from ending in time.
func (h *hold) keep() {
	defer h.keeper.Done()
	life, end := context.WithCancel(context.WithoutCancel(h.Context)) // fn may outlive the caller's ctx
	var pending chan answer                                           // nil: no request is under way
	defer func() {
		end()
		if pending != nil {
			<-pending
		}
	}()
	due := h.granted.Add(h.ttl / 3)
	wake := time.NewTimer(0)
	defer wake.Stop()
	for !h.over(time.Now()) {
		if pending == nil && !time.Now().Before(due) {
			pending = h.renew(life)
		}
		wake.Reset(time.Until(h.next(due, pending != nil)))
		select {
		case <-h.quit:
			return
		case <-wake.C:
		case a := <-pending:
			pending, due = nil, h.learn(a)
		}
	}
}

// next returns when keep has to act if no answer arrives.
func (h *hold) next(due time.Time, pending bool) time.Time {
	next := h.granted.Add(h.opts.MaxHold)
	if h.until.Before(next) {
		next = h.until
	}
	if !pending && due.Before(next) {
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

// renew sends a renewal to the store. An attempt has a third of the TTL, so that a lost
// packet does not cost all the trust, and at most the trust that is left: a later
// answer would be useless.
func (h *hold) renew(life context.Context) chan answer {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(life, min(h.ttl/3, h.until.Sub(sent)))
	pending := make(chan answer, 1)
	go func() {
		defer cancel()
		lease, err := h.store.Renew(ctx, h.lease)
		pending <- answer{sent, lease, err}
	}()
	return pending
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
		h.notify(RenewFailed, 0, a.err)
		return soon
	}
	defer h.notify(Renewed, now.Sub(h.until.Add(-2*h.ttl/3)), nil) // it was due at a third
	h.failed = nil
	until := h.trustOf(a.lease, a.sent)
	if !until.After(h.until) {
		return soon // a store with a keep-alive of its own, whose last one is too old
	}
	h.ttl = max(h.ttl, until.Sub(a.sent))
	h.lease.Until = a.lease.Until
	h.setUntil(until)
	return a.sent.Add(h.ttl / 3)
}

// Trusted reports whether ctx has not ended, and at least d is left of the trust. The trust of a ctx that does not come
// from Do does not end.
func Trusted(ctx context.Context, d time.Duration) bool {
	until, held := trust(ctx)
	return ctx.Err() == nil && (!held || time.Until(until) >= d)
}
