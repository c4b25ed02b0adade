// SPDX-License-Identifier: MIT

package inventory_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shop/inventory"
	"shop/locking"
)

// BenchmarkBuy_ColdBesideHot buys one product while 128 clients compete for another one:
// it measures what a hot row costs unrelated purchases. A purchase that waits inside
// PostgreSQL occupies one of the pool's 32 connections; one that waits for the Redis lock
// occupies none. Read x/row: the cold purchases per second as a multiple of row's in the
// same run. hot/s is the rate of the 128 clients, which must not starve.
func BenchmarkBuy_ColdBesideHot(b *testing.B) {
	var row float64 // cold purchases per second
	for _, strategy := range rowFirst() {
		b.Run(strategy, func(b *testing.B) {
			s := openWithRedis(b, inventory.Config{Strategy: strategy})
			s.stock("HOT", 1<<40)
			s.stock("COLD", 1<<40)
			stop, hot := s.hotClients(b, 128)
			waits := make([]time.Duration, 0, b.N)
			before := hot.Load()
			for b.Loop() {
				start := time.Now()
				if _, err := s.insist(b.Context(), "COLD"); err != nil {
					b.Error(err)
				}
				waits = append(waits, time.Since(start))
			}
			rate := float64(b.N) / b.Elapsed().Seconds()
			hotRate := float64(hot.Load()-before) / b.Elapsed().Seconds()
			stop()
			if strategy == "row" {
				row = rate
			}
			slices.Sort(waits)
			b.ReportMetric(rate/row, "x/row")
			b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(hotRate, "hot/s")
		})
	}
}

// hotClients lets n clients buy HOT until stop, and counts their purchases.
func (s *shop) hotClients(b *testing.B, n int) (stop func(), bought *atomic.Int64) {
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	bought = new(atomic.Int64)
	first := make(chan struct{})
	for range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.insist(ctx, "HOT"); err == nil && bought.Add(1) == 1 {
					close(first)
				}
			}
		})
	}
	select {
	case <-first: // they compete
	case <-ctx.Done():
	}
	return func() { cancel(); wg.Wait() }, bought
}

// insist buys one unit, and retries with the same key until the purchase is decided.
func (s *shop) insist(ctx context.Context, sku string) (inventory.Reply, error) {
	req := newRequest()
	for {
		reply, err := s.Buy(ctx, req, one(sku))
		if !errors.Is(err, locking.ErrBusy) {
			return reply, err
		}
	}
}
