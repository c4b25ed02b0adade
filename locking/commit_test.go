// SPDX-License-Identifier: MIT

package locking_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"shop/locking"
)

func TestCommit_ReturnsWhatTheWriteReturned(t *testing.T) {
	for _, want := range []error{nil, errWork, errors.Join(errDown, locking.ErrOutcomeUnknown)} {
		s := &script{}
		err := s.under(t, func(ctx context.Context) error {
			return locking.Commit(ctx, time.Second, func(context.Context) error { return want })
		})
		if err != want {
			t.Errorf("got %v, want %v itself", err, want)
		}
		if unknown := errors.Is(want, locking.ErrOutcomeUnknown); unknown == (len(s.releases) == 1) {
			t.Errorf("after %v: released %d times", want, len(s.releases))
		}
	}
}

// A lease without a TTL would keep its key for ever.
func TestCommit_UnknownReleasesALeaseWithoutATTL(t *testing.T) {
	s := &script{until: func(time.Time) time.Time { return time.Time{} }}
	err := s.under(t, func(ctx context.Context) error {
		return locking.Commit(ctx, time.Second, func(context.Context) error { return locking.ErrOutcomeUnknown })
	})
	if !errors.Is(err, locking.ErrOutcomeUnknown) || len(s.releases) != 1 {
		t.Errorf("%v, released %d times, want once", err, len(s.releases))
	}
}

// The caller has stopped waiting for the answer, but the server may still commit: the
// key must not be granted to the next holder before that.
func TestCommit_PastItsLimitIsUnknownAndLeavesTheLease(t *testing.T) {
	s := &script{}
	err := s.under(t, func(ctx context.Context) error {
		return locking.Commit(ctx, 3*time.Second, func(ctx context.Context) error { return silent(ctx, 0) })
	})
	if !errors.Is(err, locking.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want ErrOutcomeUnknown and why", err)
	}
	if len(s.releases) != 0 {
		t.Error("released, while the write may still happen")
	}
}

func TestCommit_SuccessAfterTheEndOfItsCtxIsSuccess(t *testing.T) {
	s := &script{renew: silent}
	err := s.under(t, func(ctx context.Context) error {
		return locking.Commit(ctx, 3*time.Second, func(context.Context) error {
			time.Sleep(10 * time.Second) // ignores its ctx
			return nil
		})
	})
	if err != nil || len(s.releases) != 1 {
		t.Errorf("got %v, released %d times", err, len(s.releases))
	}
}

// The lease is lost and the write has no answer: the error must report both.
func TestCommit_InAHoldThatIsLostReportsBoth(t *testing.T) {
	s := &script{renew: failing(0, 1, errGone)}
	err := s.under(t, func(ctx context.Context) error {
		return locking.Commit(ctx, time.Minute, func(ctx context.Context) error { return silent(ctx, 0) })
	})
	if !errors.Is(err, locking.ErrOutcomeUnknown) || !errors.Is(err, locking.ErrLost) {
		t.Errorf("got %v, want ErrOutcomeUnknown and ErrLost", err)
	}
	if len(s.releases) != 0 {
		t.Error("released, while the write may still happen")
	}
}
