package locking

import (
	"context"
	"errors"
	"fmt"
)

// NoAnswer wraps err in ErrOutcomeUnknown, unless it matches that already. If the
// caller's ctx has ended, ctx.Err() replaces err.
func NoAnswer(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if errors.Is(err, ErrOutcomeUnknown) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, MaskTimeout(ctx, err))
}

// Unsent returns the error of a request that was not sent, since no connection could be had, with the cause. It does not
// match ErrOutcomeUnknown. It matches ctx.Err() if ctx has ended.
func Unsent(ctx context.Context, err error) error {
	if end := ctx.Err(); end != nil && !errors.Is(err, end) {
		err = fmt.Errorf("%w: %w", end, err)
	}
	return fmt.Errorf("no connection: %w", MaskTimeout(ctx, err))
}

// MaskTimeout keeps a time-out of a Store, or of its client, from matching the errors
// of a ctx: errors.Is must match those only when the caller's ctx has ended.
func MaskTimeout(ctx context.Context, err error) error {
	if ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		return fmt.Errorf("no answer in time (%v)", err)
	}
	return err
}
