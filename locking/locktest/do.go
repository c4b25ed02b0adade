// SPDX-License-Identifier: MIT

package locktest

import (
	"context"
	"errors"
	"strings"
	"time"

	"shop/locking"
)

// doPanic checks that a panic in fn releases the lease.
func doPanic(s *suite) {
	a, b := s.open(s.long()), s.open(s.long())
	func() {
		defer func() {
			if got := recover(); got != "boom" {
				s.Errorf("recovered %v, want fn's panic", got)
			}
		}()
		err := locking.Do(s.within(deadline), a, options(), []string{key}, func(context.Context, locking.Lease) error {
			s.busy(b, key)
			panic("boom")
		})
		s.Errorf("Do returned %v", err)
	}()
	s.release(b, s.try(b, key))
}

// doNested checks that Do inside Do for a key that its ctx holds is refused at once, in the same Store only. To the other
// Stores the key is busy.
func doNested(s *suite) {
	a, b := s.open(s.long()), s.open(s.long())
	within := func(ctx context.Context, store locking.Store, keys ...string) error {
		return locking.Do(ctx, store, locking.Options{MaxWait: 2 * atOnce}, keys, func(context.Context, locking.Lease) error { return nil })
	}
	requests := [][]string{{key}}
	if s.MultiKey {
		requests = append(requests, []string{"a", key, "z"})
	}
	outlives := context.Background()
	err := locking.Do(s.within(deadline), a, options(), []string{key}, func(ctx context.Context, _ locking.Lease) error {
		outlives = context.WithoutCancel(ctx)
		for _, keys := range requests {
			asked := time.Now()
			err := within(ctx, a, keys...)
			if took := time.Since(asked); took > atOnce {
				s.Errorf("%q, of which the ctx holds %q: refused after %v", keys, key, took)
			}
			if !errors.Is(err, locking.ErrNested) || errors.Is(err, locking.ErrBusy) || !strings.Contains(err.Error(), key) {
				s.Errorf("%q, of which the ctx holds %q: got %v, want ErrNested", keys, key, err)
			}
		}
		if err := within(ctx, a, "other"); err != nil {
			s.Errorf("another key: %v", err)
		}
		if err := within(ctx, b, key); !errors.Is(err, locking.ErrBusy) || errors.Is(err, locking.ErrNested) {
			s.Errorf("in another store: got %v, want ErrBusy", err)
		}
		return nil
	})
	if err != nil {
		s.Errorf("the outer Do: %v", err)
	}
	if err := within(outlives, a, key); err != nil {
		s.Errorf("after Do, with the values of its ctx: %v", err)
	}
}
