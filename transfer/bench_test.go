// SPDX-License-Identifier: MIT

package transfer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/transfer"
)

// BenchmarkTransfer moves money between two hot accounts, in both directions, with 1, 8 and
// 32 clients in a closed loop. Compare x/row, the throughput as a multiple of row's in the
// same run: the absolute figures depend on the machine.
func BenchmarkTransfer(b *testing.B) {
	for _, clients := range []int{1, 8, 32} {
		var row float64 // transfers per second
		for _, strategy := range rowFirst() {
			b.Run(fmt.Sprintf("%d/%s", clients, strategy), func(b *testing.B) {
				s := open(b, transfer.Config{Strategy: strategy})
				waits := s.hammer(b, clients)
				rate := float64(b.N) / b.Elapsed().Seconds()
				if strategy == "row" {
					row = rate
				}
				slices.Sort(waits)
				b.ReportMetric(rate/row, "x/row")
				b.ReportMetric(rate, "transfers/s")
				b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1000, "p99-ms")
				if slices.Contains(safe(), strategy) {
					s.mustHold()
				}
			})
		}
	}
}

// rowFirst lists the strategies, row first: the others are compared with it.
func rowFirst() []string {
	names := []string{"row"}
	for _, name := range all() {
		if name != "row" {
			names = append(names, name)
		}
	}
	return names
}

// hammer has clients make b.N transfers, and returns how long each took.
func (s *bank) hammer(b *testing.B, clients int) []time.Duration {
	owner := uuid.New()
	accounts := []uuid.UUID{s.account(owner, 1<<40), s.account(owner, 1<<40)}
	var (
		wg   sync.WaitGroup
		next atomic.Int64
	)
	waits := make([]time.Duration, b.N)
	b.ResetTimer()
	for range clients {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				start, req := time.Now(), newRequest(owner)
				m := euros(accounts[n%2], accounts[(n+1)%2], 1)
				if _, err := until(b.Context(), func(ctx context.Context) (transfer.Reply, error) { return s.Transfer(ctx, req, m) }); err != nil {
					b.Error(err)
				}
				waits[n-1] = time.Since(start)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	return waits
}
