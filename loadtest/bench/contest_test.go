// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// BenchmarkFreeKey is the time in which one goroutine takes and releases free keys.
func BenchmarkFreeKey(b *testing.B) {
	eachLock(b, locks, func(b *testing.B, l lock) float64 {
		opened := l.opened(b, 1)
		for n := 0; b.Loop(); n++ {
			must(b, opened.hold(b.Context(), "free-"+strconv.Itoa(n%16), func() {}))
		}
		return b.Elapsed().Seconds() / float64(b.N)
	})
}

// The goroutines that want one key: of one process, and of each of several.
const (
	waiters    = 64
	perProcess = 16
)

// BenchmarkOneKey lets goroutines of one process want one key, and do nothing while they hold it.
func BenchmarkOneKey(b *testing.B) {
	eachLock(b, append(locks, combined), func(b *testing.B, l lock) float64 {
		var holders int64
		counter, err := openCounter(newCounter(b, &holders))
		must(b, err)
		opened, count := l.opened(b, waiters), requests[l.server]
		before, err := count(b.Context())
		must(b, err)
		b.ResetTimer()
		c, err := contend(b.Context(), opened, fresh(), waiters, counter, interval())
		b.StopTimer()
		must(b, err)
		after, err := count(b.Context())
		must(b, err)
		holders = c.sum() + c.Late
		b.ReportMetric((after-before)/float64(max(1, holders)), "requests/op")
		b.ReportMetric(float64(c.CPU.Microseconds())/float64(max(1, holders)), "cpu-µs/op")
		return report(b, c.Over, c.Waits, c.Grants...)
	})
}

// BenchmarkProcesses lets processes with goroutines of their own want one key.
func BenchmarkProcesses(b *testing.B) {
	for _, n := range []int{2, 4} {
		b.Run(fmt.Sprintf("processes=%d", n), func(b *testing.B) {
			eachLock(b, append(locks, combined), func(b *testing.B, l lock) float64 {
				var holders int64
				var over time.Duration
				var waits []time.Duration
				var grants []int64
				for _, c := range together[contest](b, n, "contend", l.name, fresh(), newCounter(b, &holders), interval().String()) {
					holders += c.sum() + c.Late
					over, waits, grants = max(over, c.Over), append(waits, c.Waits...), append(grants, c.sum())
				}
				return report(b, over, waits, grants...)
			})
		})
	}
}

// contender is the role of a process of BenchmarkProcesses.
func contender(args []string) error {
	counter, err := openCounter(args[2])
	if err != nil {
		return err
	}
	over, err := time.ParseDuration(args[3])
	if err != nil {
		return err
	}
	all := append(locks, combined)
	l, err := all[slices.IndexFunc(all, func(l lock) bool { return l.name == args[0] })].open(context.Background())
	if err != nil {
		return err
	}
	defer l.close()
	if err := l.hold(context.Background(), fresh(), func() {}); err != nil { // connects, loads scripts and statements
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	c, err := contend(context.Background(), l, args[1], perProcess, counter, over)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(c)
}

// eachLock measures locks, and compares ours with the others on the same server; combine with all.
func eachLock(b *testing.B, all []lock, measure func(b *testing.B, l lock) float64) {
	measured := map[string]float64{}
	for _, l := range inTurn(all) {
		b.Run("server="+l.server+"/lock="+l.name, func(b *testing.B) { measured[l.name] = measure(b, l) })
	}
	for _, l := range all {
		for _, other := range all {
			if l.ours && !other.ours && (l.server == other.server || l.name == combined.name) {
				ratio(b, "server="+l.server+"/lock="+l.name, other.name, measured[l.name], measured[other.name])
			}
		}
	}
}

// ratio reports the ratio of two measurements of one turn, as a benchmark of its own.
func ratio(b *testing.B, name, other string, measured, its float64) {
	if measured == 0 || its == 0 {
		return // it was not asked for, or did nothing in time
	}
	b.Run(name+"/against="+other, func(b *testing.B) {
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(measured/its, "ratio")
	})
}

// inTurn returns what is compared in its order, or in the other one if TURN is even: what comes first, and what comes after
// which, is not always the same.
func inTurn[T any](list []T) []T {
	list = slices.Clone(list)
	if turn, err := strconv.Atoi(os.Getenv("TURN")); err == nil && turn%2 == 0 {
		slices.Reverse(list)
	}
	return list
}

// interval is how long a load lasts: -benchtime, or a moment if that is a number (1x) and only asks whether it works.
func interval() time.Duration {
	if d, err := time.ParseDuration(flag.Lookup("test.benchtime").Value.String()); err == nil {
		return d
	}
	return 20 * time.Millisecond
}

// report reports the rate of what was done in a time, how long each waited, and the fewest of one divided by the most. It
// returns the rate.
func report(b *testing.B, over time.Duration, waits []time.Duration, each ...int64) float64 {
	rate := float64(len(waits)) / over.Seconds()
	b.ReportMetric(0, "ns/op") // of the whole load
	b.ReportMetric(rate, "ops/s")
	if slices.Sort(waits); len(waits) > 0 {
		b.ReportMetric(waits[(len(waits)-1)*50/100].Seconds()*1000, "p50-ms")
		b.ReportMetric(waits[(len(waits)-1)*99/100].Seconds()*1000, "p99-ms")
	}
	if len(each) > 1 {
		b.ReportMetric(float64(slices.Min(each))/float64(max(1, slices.Max(each))), "min/max")
	}
	return rate
}

// contest is what the goroutines of one process have seen of one key.
type contest struct {
	Grants []int64         // of each
	Late   int64           // grants after the end, to waiters that cannot leave
	Waits  []time.Duration // from the request for the key to its release
	CPU    time.Duration   // of the process
	Over   time.Duration
}

func (c contest) sum() (n int64) {
	for _, g := range c.Grants {
		n += g
	}
	return n
}

// fresh returns a key that no measurement before has used: a request that the end of a measurement cut off may
// hold its key until the TTL is over.
func fresh() string { return "hot-" + rand.Text() }

// contend lets n goroutines take and release one key until the time is over. The holder of the key counts in
// counter, which nothing else guards.
func contend(ctx context.Context, l locker, key string, n int, counter counter, over time.Duration) (c contest, err error) {
	ctx, cancel := context.WithTimeout(ctx, over)
	defer cancel()
	c.Grants = make([]int64, n)
	failed, waits := make([]error, n), make([][]time.Duration, n)
	before, start := cpu(), time.Now()
	end, _ := ctx.Deadline()
	var all sync.WaitGroup
	var late atomic.Int64
	for i := range n {
		all.Go(func() {
			for ctx.Err() == nil {
				asked, held := time.Now(), false
				err := l.hold(ctx, key, func() { held = true; counter.add() })
				switch {
				case held && ctx.Err() != nil:
					late.Add(1)
				case held:
					c.Grants[i]++
					waits[i] = append(waits[i], time.Since(asked))
				}
				if err != nil {
					// A dial may end at the deadline of ctx before ctx does.
					if held || ctx.Err() == nil && time.Now().Before(end) {
						failed[i] = err
					}
					return
				}
			}
		})
	}
	<-ctx.Done()
	c.Over = time.Since(start)
	all.Wait()
	c.CPU, c.Late, c.Waits = cpu()-before, late.Load(), slices.Concat(waits...)
	return c, errors.Join(failed...)
}

// cpu returns the CPU time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
