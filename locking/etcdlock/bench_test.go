// SPDX-License-Identifier: MIT

package etcdlock

import (
	"flag"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"
)

// peers returns what the benchmark compares, on one server with a client each: a lease
// of two keys, and two of etcd's own mutexes on one session.
func peers(b *testing.B) (us, them func() error) {
	b.Helper()
	g := shared(b)
	store := g.must(b, 10*time.Second)
	session, err := concurrency.NewSession(g.client(b), concurrency.WithTTL(10))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = session.Close() })
	ctx := b.Context()
	us = func() error {
		lease, err := store.Acquire(ctx, "a", "b")
		if err != nil {
			return err
		}
		return store.Release(ctx, lease)
	}
	them = func() error {
		first, second := concurrency.NewMutex(session, g.prefix+"/mutex/a"), concurrency.NewMutex(session, g.prefix+"/mutex/b")
		for _, step := range []func() error{
			func() error { return first.Lock(ctx) }, func() error { return second.Lock(ctx) },
			func() error { return second.Unlock(ctx) }, func() error { return first.Unlock(ctx) },
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	}
	return us, them
}

// once reports whether each benchmark runs once, only to show that it works
// (-benchtime 1x). A comparison would be meaningless then.
func once() bool { return flag.Lookup("test.benchtime").Value.String() == "1x" }

// BenchmarkTwoKeys acquires and releases two free keys, in alternation with two of etcd's
// mutexes, a thousand times each. It compares the medians, because other load of the
// machine delays some rounds of both. Compare x-of-mutex alone: the other figures depend
// on the machine. A lease takes two requests, the mutexes take four; with a third
// request the ratio would be 0.75.
func BenchmarkTwoKeys(b *testing.B) {
	us, them := peers(b)
	timed := func(f func() error) float64 {
		start := time.Now()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		return float64(time.Since(start).Microseconds())
	}
	turns := 500
	if once() {
		turns = 1
	}
	var ours, theirs []float64
	for range turns { // the order of the two alternates as well
		ours = append(ours, timed(us))
		theirs = append(theirs, timed(them), timed(them))
		ours = append(ours, timed(us))
	}
	for b.Loop() { // ns/op: one lease
		timed(us)
	}
	ratio := median(ours) / median(theirs)
	b.ReportMetric(median(ours), "us/etcdlock")
	b.ReportMetric(median(theirs), "us/mutexes")
	b.ReportMetric(ratio, "x-of-mutex")
	if ratio > 0.7 && !once() {
		b.Errorf("%.2f of two mutexes, want 0.7 at most", ratio)
	}
}

func median(of []float64) float64 {
	slices.Sort(of)
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}

// BenchmarkHandoff lets 16 goroutines wait for one key, over one Store and over four,
// and counts how often the key changes hands.
func BenchmarkHandoff(b *testing.B) {
	for name, processes := range map[string]int{"1-process": 1, "4-processes": 4} {
		b.Run(name, func(b *testing.B) {
			g := shared(b)
			var stores []*Store
			for range processes {
				stores = append(stores, g.must(b, 10*time.Second))
			}
			b.SetParallelism(8)
			next := make(chan *Store, 64)
			for i := range cap(next) {
				next <- stores[i%processes]
			}
			b.ResetTimer()
			b.RunParallel(func(p *testing.PB) {
				store := <-next
				for p.Next() {
					lease, err := store.Acquire(b.Context(), "k")
					if err == nil {
						err = store.Release(b.Context(), lease)
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "handoffs/s")
		})
	}
}
