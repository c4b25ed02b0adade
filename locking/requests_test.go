// SPDX-License-Identifier: MIT

package locking_test

import (
	"context"
	"time"
)

// work returns nil after d, or the cause of ctx when that ends first.
func work(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// silent is a request without an answer: it returns when its ctx ends.
func silent(ctx context.Context, _ int) error {
	<-ctx.Done()
	return ctx.Err()
}

// deaf is a request that ignores its ctx for d.
func deaf(d time.Duration) func(context.Context, int) error {
	return func(context.Context, int) error {
		time.Sleep(d)
		return nil
	}
}

// slow is a request that is answered after d.
func slow(d time.Duration) func(context.Context, int) error {
	return func(ctx context.Context, _ int) error { return work(ctx, d) }
}

// failing is a request that fails with err if n is in [from, to).
func failing(from, to int, err error) func(context.Context, int) error {
	return func(_ context.Context, n int) error {
		if from <= n && n < to {
			return err
		}
		return nil
	}
}

// first is a for the first request, and b for all others.
func first(a, b func(context.Context, int) error) func(context.Context, int) error {
	return func(ctx context.Context, n int) error {
		if n == 0 {
			return a(ctx, n)
		}
		return b(ctx, n)
	}
}
