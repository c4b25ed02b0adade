package locking

import (
	"context"
	"time"
)

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
