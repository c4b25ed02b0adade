// SPDX-License-Identifier: MIT

package zklock

import (
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// BenchmarkAcquireRelease acquires and releases a free key, in alternation with the lock of the client, on
// one server. x-of-lock is the ratio of the medians. A lease takes two requests and two goroutines, the
// lock three requests; it reads no fence.
func BenchmarkAcquireRelease(b *testing.B) {
	g := shared(b)
	store := g.must(b, 10*time.Second)
	lock := zk.NewLock(store.conn, g.prefix+"/lock", zk.WorldACL(zk.PermAll))
	timed := func(f func() error) float64 {
		start := time.Now()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		return float64(time.Since(start))
	}
	var ours, theirs []float64
	for b.Loop() {
		ours = append(ours, timed(func() error {
			l, err := store.Acquire(b.Context(), "k")
			if err == nil {
				err = store.Release(b.Context(), l)
			}
			return err
		}))
		theirs = append(theirs, timed(func() error {
			err := lock.Lock()
			if err == nil {
				err = lock.Unlock()
			}
			return err
		}))
	}
	median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
	b.ReportMetric(median(ours)/median(theirs), "x-of-lock")
	b.ReportMetric(median(ours)/1e3, "µs/lease")
}
