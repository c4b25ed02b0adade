// SPDX-License-Identifier: MIT

package locktest

import (
	"context"
	"testing"

	"shop/locking"
)

// HoldOnce returns a function that acquires and releases keys, or if there are none the key "k", for a benchmark.
func HoldOnce(b *testing.B, s locking.Store, keys ...string) func() error {
	if len(keys) == 0 {
		keys = []string{"k"}
	}
	return func() error {
		l, err := s.TryAcquire(b.Context(), keys...)
		if err != nil {
			return err
		}
		return s.Release(b.Context(), l)
	}
}

// BenchmarkHandOff is the time from one grant of a key to the next, while sixteen goroutines want it, over
// all of the stores.
func BenchmarkHandOff(b *testing.B, stores ...locking.Store) {
	const waiters = 16
	ctx, stop := context.WithCancel(context.Background())
	grants, done := make(chan struct{}), make(chan struct{})
	for i := range waiters {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				_ = locking.Do(ctx, stores[i%len(stores)], locking.Options{}, []string{"k"}, func(ctx context.Context, _ locking.Lease) error {
					select {
					case grants <- struct{}{}:
					case <-ctx.Done():
					}
					return nil
				})
			}
		}()
	}
	for b.Loop() {
		<-grants
	}
	stop()
	for range waiters {
		<-done
	}
}
