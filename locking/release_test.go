// SPDX-License-Identifier: MIT

package locking_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"shop/locking"
)

func TestDo_DoesNotWaitForARenewalAfterFnHasReturned(t *testing.T) {
	s := &script{renew: silent}
	p := s.play(t, locking.Options{}, func(ctx context.Context, _ locking.Lease) error {
		return work(ctx, 3*time.Second)
	})
	if p.err != nil || p.lasted != 3*time.Second {
		t.Errorf("got %v after %v, want fn's end at 3 s", p.err, p.lasted)
	}
}

func TestDo_ReleaseIsBoundedByItsOwnTimeout(t *testing.T) {
	s := &script{release: func(ctx context.Context) error { return silent(ctx, 0) }}
	p := s.play(t, locking.Options{}, func(context.Context, locking.Lease) error { return nil })
	if p.lasted != time.Second {
		t.Errorf("Do took %v with a release that is not answered within 1 s", p.lasted)
	}
	if want := []locking.Kind{locking.Attempt, locking.Acquired, locking.Left}; !slices.Equal(p.kinds(), want) {
		t.Errorf("events %v, want %v", p.kinds(), want)
	}
}

type trace struct{}

// The client has left while fn is in the middle of a COMMIT: the lease must still be
// renewed, and the release must not be cancelled with the request.
func TestDo_CallersCtxEndsNeitherRenewalNorRelease(t *testing.T) {
	var released error
	var values []any
	s := &script{release: func(ctx context.Context) error {
		released = ctx.Err()
		values = append(values, ctx.Value(trace{}))
		return nil
	}}
	s.renew = func(ctx context.Context, _ int) error {
		values = append(values, ctx.Value(trace{}))
		return ctx.Err()
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(context.WithValue(t.Context(), trace{}, 7))
		err := locking.Do(ctx, s, locking.Options{}, one, func(ctx context.Context, _ locking.Lease) error {
			leave()
			time.Sleep(9 * time.Second)
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, locking.ErrLost) {
			t.Errorf("got %v, want Canceled and not ErrLost: the caller has left, the lease is held", err)
		}
	})
	if want := seconds(2, 4, 6, 8); !slices.Equal(s.renewals, want) {
		t.Errorf("renewed at %v, want %v", s.renewals, want)
	}
	if released != nil {
		t.Errorf("release was sent on a ctx that had ended: %v", released)
	}
	if want := []any{7, 7, 7, 7, 7}; !reflect.DeepEqual(values, want) {
		t.Errorf("values of the ctx, for a trace: %v, want %v", values, want)
	}
}
