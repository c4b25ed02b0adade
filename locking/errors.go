package locking

import (
	"context"
	"errors"
	"fmt"
)

// The errors of every Store. Match them with errors.Is.
var (
	ErrBusy           = errors.New("locking: busy: someone else holds the key")
	ErrLost           = errors.New("locking: lease lost")
	ErrStale          = errors.New("locking: fence is stale: a newer holder has written")
	ErrKey            = errors.New("locking: a key must be valid UTF-8 without NUL, 1 to 512 bytes")
	ErrOutcomeUnknown = errors.New("locking: outcome unknown: the request was sent, no answer came")
)

// ErrMaxHold is the cause that ends fn's ctx after Options.MaxHold. It matches
// ErrLost too: nothing renews the lease any more, so that whoever knows what to
// do about a lost lease does the same here. To tell them apart, look for
// ErrMaxHold first.
var ErrMaxHold = fmt.Errorf("%w: held for the longest time allowed", ErrLost)

// ended says why ctx ended: errors.Is finds ctx.Err() and the cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// gone is ended for a ctx of Do. A lost lease is told without ctx.Err(), which
// would say that the caller has gone away.
func gone(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrLost) {
		return cause
	}
	return ended(ctx)
}
