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
// do about a lost lease does the same here. Look for ErrMaxHold first to tell them apart.
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

// notHeld is why a lock was not acquired. It never matches ErrOutcomeUnknown:
// whether the *lock* was taken by a request without answer is the Store's to
// clear up; to a caller that error says "your work may have happened", and the
// work was not even begun.
type notHeld struct{ err error }

func (e notHeld) Error() string      { return e.err.Error() }
func (e notHeld) As(target any) bool { return errors.As(e.err, target) }
func (e notHeld) Is(target error) bool {
	return target != ErrOutcomeUnknown && errors.Is(e.err, target)
}
