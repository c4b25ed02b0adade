// SPDX-License-Identifier: MIT

package locking_test

import (
	"context"
	"testing"
	"time"

	"shop/locking"
)

// noop is a store that does nothing, so that the benchmark measures Do alone.
type noop struct{ lease locking.Lease }

func newNoop() *noop {
	return &noop{locking.Lease{Keys: one, Owner: "me", Fence: 1, Until: time.Now().Add(time.Hour)}}
}

func (n *noop) TryAcquire(context.Context, ...string) (locking.Lease, error) { return n.lease, nil }

func (n *noop) Renew(context.Context, locking.Lease) (locking.Lease, error) { return n.lease, nil }
func (n *noop) Release(context.Context, locking.Lease) error                { return nil }
func nothing(context.Context, locking.Lease) error                          { return nil }
func commit(ctx context.Context, _ locking.Lease) error {
	return locking.Commit(ctx, time.Second, succeed)
}
func succeed(context.Context) error { return nil }

func BenchmarkDo(b *testing.B) {
	for _, c := range []struct {
		name string
		o    locking.Options
		fn   func(context.Context, locking.Lease) error
	}{
		{"Bare", locking.Options{}, nothing},
		{"Observed", locking.Options{Observer: func(locking.Event) {}}, nothing},
		{"Commit", locking.Options{}, commit},
	} {
		b.Run(c.name, func(b *testing.B) {
			store, ctx := newNoop(), b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if err := locking.Do(ctx, store, c.o, one, c.fn); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAcquire(b *testing.B) {
	store, ctx := newNoop(), b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := locking.Acquire(ctx, store, locking.Options{}, one...); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBackoff(b *testing.B) {
	n := 0
	for b.Loop() {
		locking.Backoff{}.Wait(n & 15)
		n++
	}
}

// Without an Observer no event is made, and Acquire allocates nothing. Do allocates
// fn's ctx, the timer of the first renewal, and the ctx of the release.
func TestObserver_NilCostsNothing(t *testing.T) {
	store, ctx := newNoop(), t.Context()
	acquire := testing.AllocsPerRun(100, func() { _, _ = locking.Acquire(ctx, store, locking.Options{}, one...) })
	if acquire != 0 {
		t.Errorf("Acquire allocates %v times", acquire)
	}
	do := testing.AllocsPerRun(100, func() { _ = locking.Do(ctx, store, locking.Options{}, one, nothing) })
	if do > 12 {
		t.Errorf("Do allocates %v times, want at most 12", do)
	}
}
