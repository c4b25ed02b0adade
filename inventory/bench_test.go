// SPDX-License-Identifier: MIT

package inventory_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shop/inventory"
	"shop/locking"
)

// BenchmarkBuy_OneHotRow buys one product with 1, 8 and 32 concurrent clients, closed
// loop. Read x/row, the throughput as a multiple of row's in the same run: the absolute
// figures depend on the machine. busy/op counts the busy answers per purchase.
func BenchmarkBuy_OneHotRow(b *testing.B) {
	for _, clients := range []int{1, 8, 32} {
		var row float64 // purchases per second
		for _, strategy := range rowFirst() {
			b.Run(fmt.Sprintf("%d/%s", clients, strategy), func(b *testing.B) {
				s := openWithRedis(b, inventory.Config{Strategy: strategy})
				s.stock("HOT", 1<<40)
				waits, busy := s.hammer(b, clients)
				rate := float64(b.N) / b.Elapsed().Seconds()
				if strategy == "row" {
					row = rate
				}
				slices.Sort(waits)
				b.ReportMetric(rate/row, "x/row")
				b.ReportMetric(rate, "buys/s")
				b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1000, "p99-ms")
				b.ReportMetric(float64(busy)/float64(b.N), "busy/op")
				if strategy != "naive" {
					s.mustHold()
				}
			})
		}
	}
}

// rowFirst lists the strategies, starting with row, with which the others are compared.
func rowFirst() []string {
	names := []string{"row"}
	for _, s := range inventory.Strategies() {
		if s.Name != "row" {
			names = append(names, s.Name)
		}
	}
	return names
}

// hammer lets clients buy until b.N purchases are done, and returns how long each took.
func (s *shop) hammer(b *testing.B, clients int) (waits []time.Duration, busy int64) {
	var (
		wg   sync.WaitGroup
		next atomic.Int64
		told atomic.Int64
	)
	waits = make([]time.Duration, b.N)
	b.ResetTimer()
	for range clients {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				start, req := time.Now(), newRequest()
				_, err := s.Buy(b.Context(), req, one("HOT"))
				for ; errors.Is(err, locking.ErrBusy); told.Add(1) {
					_, err = s.Buy(b.Context(), req, one("HOT"))
				}
				if err != nil {
					b.Error(err)
				}
				waits[n-1] = time.Since(start)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	return waits, told.Load()
}
