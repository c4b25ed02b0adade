// SPDX-License-Identifier: MIT

package locking_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"shop/locking"
)

// unanswered is a request whose ctx ends before the answer, as a store reports it.
func unanswered(ctx context.Context, _ int) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", locking.ErrOutcomeUnknown, ctx.Err())
}

func TestAcquire_MaxWaitBoundsTheWaitAlone(t *testing.T) {
	for name, c := range map[string]struct {
		store locking.Store
		busy  bool
		kind  locking.Kind
	}{
		"busy":            {taken(math.MaxInt), true, locking.TimedOut},
		"busy, then cut":  {&script{acquire: first(failing(0, 1, locking.ErrBusy), unanswered)}, true, locking.TimedOut},
		"silent":          {&script{acquire: unanswered}, false, locking.Failed}, // no answer is never reported as busy
		"a queue":         {&queue{script: &script{}, err: errors.Join(locking.ErrBusy, context.DeadlineExceeded)}, true, locking.TimedOut},
		"a silent queue":  {&queue{script: &script{}, err: context.DeadlineExceeded}, false, locking.Failed},
		"busy, then down": {&script{acquire: first(failing(0, 1, locking.ErrBusy), failing(1, 2, errDown))}, false, locking.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var last locking.Event
				o := steady
				o.MaxWait, o.Observer = 1500*time.Millisecond, func(e locking.Event) { last = e }
				begin := time.Now()
				err := locking.Do(t.Context(), c.store, o, one, func(context.Context, locking.Lease) error {
					t.Error("fn ran without the lock")
					return nil
				})
				if err == nil || errors.Is(err, locking.ErrBusy) != c.busy {
					t.Errorf("got %v, want ErrBusy: %t", err, c.busy)
				}
				if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locking.ErrOutcomeUnknown) {
					t.Errorf("got %v: the caller has time left, and nothing was begun", err)
				}
				if waited := time.Since(begin); waited > o.MaxWait || last.Kind != c.kind || last.Err != err {
					t.Errorf("waited %v, last event %+v", waited, last)
				}
			})
		})
	}
}

func TestAcquire_CtxThatEndsBeforeMaxWaitIsTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		o := steady
		o.MaxWait = time.Hour
		_, err := locking.Acquire(ctx, taken(math.MaxInt), o, one...)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, locking.ErrBusy) {
			t.Errorf("got %v, want both", err)
		}
	})
}

// MaxWait bounds only the wait: fn has all the time of the caller's ctx.
func TestDo_MaxWaitDoesNotLimitFn(t *testing.T) {
	s := taken(1)
	o := steady
	o.MaxWait = 2 * time.Second
	p := s.play(t, o, func(ctx context.Context, _ locking.Lease) error {
		if end, limited := ctx.Deadline(); limited {
			t.Errorf("fn's ctx ends at %v", end)
		}
		return work(ctx, 15*time.Second)
	})
	if p.err != nil {
		t.Errorf("got %v", p.err)
	}
}
