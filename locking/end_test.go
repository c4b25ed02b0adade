// SPDX-License-Identifier: MIT

package locking_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"shop/locking"
)

// refused is a store that refuses the first renewal.
func refused() *script { return &script{renew: failing(0, 1, errGone)} }

func TestDo_ReturnsNilIfFnDoesWhateverHappensToTheLease(t *testing.T) {
	for name, s := range map[string]*script{
		"kept":                  {},
		"renewal refused":       refused(),
		"trust over":            {renew: silent},
		"release refused":       {release: func(context.Context) error { return errGone }},
		"release fails":         {release: func(context.Context) error { return errDown }},
		"release silent":        {release: func(ctx context.Context) error { return silent(ctx, 0) }},
		"lost, release refused": {renew: failing(0, 1, errGone), release: func(context.Context) error { return errGone }},
	} {
		t.Run(name, func(t *testing.T) {
			p := s.play(t, locking.Options{}, func(context.Context, locking.Lease) error {
				time.Sleep(9 * time.Second) // ignores its ctx: Do waits for it
				return nil
			})
			if p.err != nil {
				t.Errorf("got %v: an effect that was committed is reported as failed", p.err)
			}
			if p.lasted < 9*time.Second || len(s.releases) != 1 {
				t.Errorf("lasted %v, released %d times", p.lasted, len(s.releases))
			}
		})
	}
}

func TestDo_ReturnsTheErrorOfFnUnchanged(t *testing.T) {
	s := &script{release: func(context.Context) error { return errDown }}
	p := s.play(t, locking.Options{}, func(context.Context, locking.Lease) error { return errWork })
	if p.err != errWork {
		t.Errorf("got %v, want fn's error itself", p.err)
	}
}

func TestDo_JoinsTheErrorOfFnWithTheLoss(t *testing.T) {
	for name, s := range map[string]*script{
		"renewal refused":         refused(),
		"trust over":              {renew: silent},
		"only release notices it": {release: func(context.Context) error { return errGone }},
	} {
		t.Run(name, func(t *testing.T) {
			p := s.play(t, locking.Options{}, func(context.Context, locking.Lease) error {
				time.Sleep(9 * time.Second)
				return errWork
			})
			if !errors.Is(p.err, errWork) || !errors.Is(p.err, locking.ErrLost) {
				t.Errorf("got %v, want both", p.err)
			}
			if !slices.Contains(p.kinds(), locking.Lost) {
				t.Errorf("no event of the loss: %v", p.kinds())
			}
		})
	}
}

func TestDo_CauseReturnedByFnIsNotRepeated(t *testing.T) {
	p := refused().play(t, locking.Options{}, func(ctx context.Context, _ locking.Lease) error {
		return work(ctx, time.Minute)
	})
	if p.err == nil || p.err.Error() != errGone.Error() {
		t.Errorf("got %q, want %q once", p.err, errGone)
	}
}

func TestDo_UnknownOutcomeLeavesTheLeaseToExpire(t *testing.T) {
	s := &script{}
	p := s.play(t, locking.Options{}, func(context.Context, locking.Lease) error {
		return fmt.Errorf("commit: %w", locking.ErrOutcomeUnknown)
	})
	if !errors.Is(p.err, locking.ErrOutcomeUnknown) {
		t.Errorf("got %v", p.err)
	}
	if len(s.releases) != 0 {
		t.Error("released, while a write may still be under way")
	}
	if want := []locking.Kind{locking.Attempt, locking.Acquired, locking.Left}; !slices.Equal(p.kinds(), want) {
		t.Errorf("events %v, want %v", p.kinds(), want)
	}
}

func TestDo_PanicReleasesAndContinues(t *testing.T) {
	type boom struct{ n int }
	s := &script{}
	defer func() {
		if got := recover(); got != (boom{42}) {
			t.Errorf("recovered %v, want fn's own value", got)
		}
		if len(s.releases) != 1 {
			t.Errorf("released %d times: the key stays taken", len(s.releases))
		}
	}()
	err := locking.Do(t.Context(), s, locking.Options{}, one, func(context.Context, locking.Lease) error { panic(boom{42}) })
	t.Errorf("Do returned %v", err)
}

func TestDo_PanicAfterTheFirstRenewalJoinsTheKeeper(t *testing.T) {
	s := &script{renew: silent}
	synctest.Test(t, func(t *testing.T) {
		defer func() {
			if recover() == nil || s.underWay != 0 || len(s.releases) != 1 {
				t.Errorf("%d requests under way, released %d times", s.underWay, len(s.releases))
			}
		}()
		_ = locking.Do(t.Context(), s, locking.Options{}, one, func(context.Context, locking.Lease) error {
			time.Sleep(3 * time.Second)
			panic("boom")
		})
	})
}

// t.FailNow in fn does the same.
func TestDo_GoexitReleases(t *testing.T) {
	s := &script{}
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_ = locking.Do(t.Context(), s, locking.Options{}, one, func(context.Context, locking.Lease) error {
				time.Sleep(3 * time.Second)
				runtime.Goexit()
				return nil
			})
			t.Error("Do returned")
		}()
		<-gone
	})
	if len(s.releases) != 1 || s.underWay != 0 {
		t.Errorf("released %d times, %d requests under way", len(s.releases), s.underWay)
	}
}
