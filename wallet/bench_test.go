// SPDX-License-Identifier: MIT

package wallet_test

import (
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/wallet"
)

// BenchmarkCredit credits one hot wallet with 1, 8 and 32 clients in a closed loop; lockid
// also without its queue. Compare lost/op, calls/op and tries/op: the rates depend on the
// machine.
func BenchmarkCredit(b *testing.B) {
	const noQueue = "lockid-no-queue"
	for _, clients := range []int{1, 8, 32} {
		for _, strategy := range append(all(), noQueue) {
			b.Run(fmt.Sprintf("%d/%s", clients, strategy), func(b *testing.B) {
				cfg := wallet.Config{Strategy: strategy}
				if strategy == noQueue {
					cfg = wallet.Config{QueueMax: -1}
				}
				c := open(b, cfg)
				waits := c.hammer(clients, b.N)
				calls, _ := c.bonus.calls()
				b.ReportMetric(float64(b.N)/waits.elapsed.Seconds(), "credits/s")
				b.ReportMetric(waits.p99().Seconds()*1000, "p99-ms")
				b.ReportMetric(1-float64(waits.kept)/float64(b.N), "lost/op")
				b.ReportMetric(float64(calls)/float64(b.N), "calls/op")
				b.ReportMetric(1+float64(c.events.Of(wallet.Retried))/float64(b.N), "tries/op")
				if strategy != "naive" {
					c.mustHold()
				}
			})
		}
	}
}

// once reports whether each benchmark runs once, only to see that it works (-benchtime 1x).
// Then there is nothing to compare.
func once() bool { return flag.Lookup("test.benchtime").Value.String() == "1x" }

// BenchmarkQueue compares lockid with and without the queue of this process, with 32 clients at
// one wallet. It runs ten pairs, so that other load on the machine affects both. It reports
// the medians of the ten ratios, and fails unless the wait at p99 is at most a tenth and the
// throughput at least twice as high.
func BenchmarkQueue(b *testing.B) {
	clients, credits, pairs := 32, 400, 10
	if once() {
		credits, pairs = 32, 1
	}
	for b.Loop() {
		var rates, p99s []float64
		for range pairs {
			plain := open(b, wallet.Config{QueueMax: -1}).hammer(clients, credits)
			lined := open(b, wallet.Config{}).hammer(clients, credits)
			rates = append(rates, plain.elapsed.Seconds()/lined.elapsed.Seconds())
			p99s = append(p99s, lined.p99().Seconds()/plain.p99().Seconds())
			b.Logf("plain %4.0f/s p99 %v, queued %4.0f/s p99 %v", float64(credits)/plain.elapsed.Seconds(), plain.p99().Round(time.Millisecond), float64(credits)/lined.elapsed.Seconds(), lined.p99().Round(time.Millisecond))
		}
		rate, p99 := median(rates), median(p99s)
		b.ReportMetric(rate, "x-throughput")
		b.ReportMetric(p99, "x-p99")
		if (rate < 2 || p99 > 0.1) && !once() {
			b.Errorf("%.2f of the throughput and %.3f of the p99 without a queue, want at least 2 and at most 0.1; the ten: %.2f and %.3f", rate, p99, rates, p99s)
		}
	}
}

func median(of []float64) float64 {
	slices.Sort(of)
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}

// waits has the time of each operation, and of all of them together.
type waits struct {
	elapsed time.Duration
	each    []time.Duration
	kept    int64 // how many credits are in the balance
}

func (w waits) p99() time.Duration {
	slices.Sort(w.each)
	return w.each[len(w.each)*99/100]
}

// hammer has clients make so many credits to one wallet.
func (c *fixture) hammer(clients, credits int) waits {
	c.t.Helper()
	const amount = 10
	owner := uuid.New()
	id := c.wallet(owner, 0)
	var (
		wg   sync.WaitGroup
		next atomic.Int64
	)
	w := waits{each: make([]time.Duration, credits)}
	begin := time.Now()
	for range clients {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(credits); n = next.Add(1) {
				start, req := time.Now(), newRequest(owner)
				if _, err := until(c.t.Context(), func() (wallet.Reply, error) { return c.Credit(c.t.Context(), req, id, amount) }); err != nil {
					c.t.Error(err)
				}
				w.each[n-1] = time.Since(start)
			}
		})
	}
	wg.Wait()
	w.elapsed = time.Since(begin)
	found, err := c.Wallet(c.t.Context(), owner, id)
	if err != nil {
		c.t.Fatal(err)
	}
	w.kept = found.Balance / (amount + amount/10) // the bonus service gives a tenth
	return w
}
