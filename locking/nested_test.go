// SPDX-License-Identifier: MIT

package locking_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shop/locking"
)

// shared is a Store that grants a key to several holders at once.
type shared struct{ *script }

func (shared) Shared() bool { return true }

func TestNested_IsRefusedOnlyForAKeyThatTheCtxHoldsInTheSameStore(t *testing.T) {
	a, b := &script{}, &script{}
	several := shared{&script{}}
	type request struct {
		store  locking.Store
		keys   []string
		change func(context.Context) context.Context
		nested bool
	}
	same := func(ctx context.Context) context.Context { return ctx }
	for name, r := range map[string]request{
		"the same key":            {a, []string{"x"}, same, true},
		"one of several":          {a, []string{"z", "y"}, same, true},
		"of an outer Do":          {b, []string{"x"}, same, true},
		"another key":             {a, []string{"z"}, same, false},
		"another store":           {&script{}, []string{"x"}, same, false},
		"a key of the other":      {b, []string{"y"}, same, false},
		"a ctx that cannot end":   {a, []string{"x"}, context.WithoutCancel, true},
		"a ctx from outside":      {a, []string{"x"}, func(context.Context) context.Context { return t.Context() }, false},
		"a store of shared locks": {several, []string{"x"}, same, false},
	} {
		err := under(t, t.Context(), several, "x", func(ctx context.Context) error {
			return under(t, ctx, b, "x", func(ctx context.Context) error {
				return locking.Do(ctx, a, locking.Options{}, []string{"x", "y"}, func(ctx context.Context, _ locking.Lease) error {
					_, err := locking.Acquire(r.change(ctx), r.store, locking.Options{NoWait: true}, r.keys...)
					return err
				})
			})
		})
		if errors.Is(err, locking.ErrNested) != r.nested || !r.nested && err != nil {
			t.Errorf("%s: got %v, want ErrNested: %t", name, err, r.nested)
		}
		if errors.Is(err, locking.ErrBusy) || errors.Is(err, locking.ErrOutcomeUnknown) {
			t.Errorf("%s: %v would be repeated", name, err)
		}
	}
}

func under(t *testing.T, ctx context.Context, s locking.Store, key string, fn func(context.Context) error) error {
	t.Helper()
	return locking.Do(ctx, s, locking.Options{}, []string{key}, func(ctx context.Context, _ locking.Lease) error { return fn(ctx) })
}

// The values of a ctx may outlive the lease: then the key is free for it.
func TestNested_EndsWithTheLease(t *testing.T) {
	s, outlives := &script{}, t.Context()
	if err := under(t, t.Context(), s, "x", func(ctx context.Context) error { outlives = context.WithoutCancel(ctx); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := under(t, outlives, s, "x", func(context.Context) error { return nil }); err != nil {
		t.Errorf("after Do: %v", err)
	}
}

// uncomparable is a Store that == cannot compare.
type uncomparable struct {
	*script
	_ []int
}

func TestNested_OfAStoreThatCannotBeComparedIsNotRecognized(t *testing.T) {
	s := uncomparable{script: &script{}}
	err := under(t, t.Context(), s, "x", func(ctx context.Context) error { return locking.Nested(ctx, s, "x") })
	if err != nil {
		t.Error(err)
	}
}

func TestMaxHold_IsNamedWithItsValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := locking.Do(t.Context(), &script{}, locking.Options{MaxHold: 90 * time.Second}, one, func(ctx context.Context, _ locking.Lease) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, locking.ErrMaxHold) || !errors.Is(err, locking.ErrLost) {
			t.Errorf("got %v, want ErrMaxHold, which is ErrLost", err)
		}
		for _, want := range []string{"Options.MaxHold", "1m30s", "NoLimit"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in %q", want, err)
			}
		}
	})
}

func TestMaxHold_NoLimitRenewsForAsLongAsFnRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		err := locking.Do(t.Context(), s, locking.Options{MaxHold: locking.NoLimit}, one, func(ctx context.Context, _ locking.Lease) error {
			time.Sleep(10 * time.Hour)
			return ctx.Err()
		})
		if err != nil || len(s.renewals) < 10*3600/2-10 || len(s.releases) != 1 {
			t.Errorf("got %v after %d renewals and %d releases", err, len(s.renewals), len(s.releases))
		}
	})
}
