package redlock

import (
	"testing"
	"time"

	"shop/locking/locktest"
)

// BenchmarkUncontended acquires and releases a free key on five servers, and on one of them with
// the same commands, in alternating series of a hundred. Compare x-of-one-server alone: the
// other figures depend on the machine, which all servers share here.
func BenchmarkUncontended(b *testing.B) {
	s := newStore(b, shared, time.Minute)
	series := func(once func()) time.Duration {
		start := time.Now()
		for range 100 {
			once()
		}
		return time.Since(start) / 100
	}
	five := func() { locktest.Released(b, s, locktest.Taken(b, s, "five")) }
	l := s.lock("one", "owner")
	one := func() {
		for _, do := range []command{s.do.acquire, s.do.release} {
			if err := locktest.Insist(b.Context(), func(bool) error { _, err := do(b.Context(), s.servers[0], l); return err }); err != nil {
				b.Fatal(err)
			}
		}
	}
	var spentFive, spentOne time.Duration
	n := 0
	for b.Loop() {
		spentFive += series(five)
		spentOne += series(one)
		n++
	}
	b.ReportMetric(float64(spentFive.Microseconds())/float64(n), "us/five")
	b.ReportMetric(float64(spentOne.Microseconds())/float64(n), "us/one")
	b.ReportMetric(float64(spentFive)/float64(spentOne), "x-of-one-server")
}
