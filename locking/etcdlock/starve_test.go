// SPDX-License-Identifier: MIT

package etcdlock

import (
	"context"
	"sync"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// contest is the case in which requests for several keys are known to starve: 16
// goroutines over four Stores lock pairs without a pause, and one requests all eight keys.
//
// The order bounds the wait of that one: later requests cannot overtake it, so it waits
// only for the requests that are already queued, at most one of each goroutine.
type contest struct {
	mu        sync.Mutex
	fences    []locking.Fence // of all leases, in order of their grants
	eights    []int           // the indices in fences of the leases of eight keys
	longest   time.Duration   // wait for eight keys
	meanwhile int             // pairs granted during the longest wait
}

var eightKeys = []string{"0", "1", "2", "3", "4", "5", "6", "7"}

// granted records a Lease while it is held, and returns how many came before it.
func (c *contest) granted(l locking.Lease) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fences = append(c.fences, l.Fence)
	if len(l.Keys) == len(eightKeys) {
		c.eights = append(c.eights, len(c.fences)-1)
	}
	return len(c.fences) - 1
}

func (c *contest) soFar() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.fences)
}

func (c *contest) pairs() int { return len(c.fences) - len(c.eights) }

// passed counts the requests that entered after a request for eight keys and were granted before it.
func (c *contest) passed() (n int) {
	for _, at := range c.eights {
		for _, f := range c.fences[:at] {
			if f > c.fences[at] {
				n++
			}
		}
	}
	return n
}

// starve runs a contest until the eight keys have been locked 20 times.
func starve(t testing.TB, g target) *contest {
	c := &contest{}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for w := range 4 {
		store := g.must(t, 10*time.Second)
		for i := range 4 {
			all.Go(func() { c.lockPairs(ctx, t, store, w+i, 1+i) })
		}
	}
	eight := g.must(t, 10*time.Second)
	locktest.Eventually(t, "pairs are locked", func() bool { return c.soFar() > 16 })
	for range 20 {
		asked, before := time.Now(), c.soFar()
		lease, err := eight.Acquire(ctx, eightKeys...)
		if err != nil {
			t.Errorf("all eight: %v", err)
			break
		}
		if took, pairs := time.Since(asked), c.granted(lease)-before; took > c.longest {
			c.longest, c.meanwhile = took, pairs
		}
		if err := eight.Release(ctx, lease); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	stop()
	all.Wait()
	return c
}

func (c *contest) lockPairs(ctx context.Context, t testing.TB, store *Store, from, apart int) {
	for n := from; ctx.Err() == nil; n++ {
		lease, err := store.Acquire(ctx, eightKeys[n%8], eightKeys[(n+apart)%8])
		if err != nil {
			continue // ctx has ended
		}
		c.granted(lease)
		if err := store.Release(context.WithoutCancel(ctx), lease); err != nil {
			t.Errorf("release: %v", err)
		}
	}
}

func TestAcquire_EightKeysAreNotStarvedByPairs(t *testing.T) {
	c := starve(t, shared(t))
	t.Logf("16 goroutines locked %d pairs; the request for all eight keys waited %v at most, of 20 times, while %d pairs were locked",
		c.pairs(), c.longest.Round(time.Millisecond), c.meanwhile)
	if n := c.passed(); n > 0 {
		t.Errorf("%d requests entered after one for eight keys and were granted before it", n)
	}
	if c.pairs() < 2*20 {
		t.Errorf("%d pairs were locked, want at least 40: too little load", c.pairs())
	}
}

// BenchmarkStarvation reports how long a request for eight keys waits among pairs.
func BenchmarkStarvation(b *testing.B) {
	var longest time.Duration
	pairs, turns := 0, 0
	for b.Loop() {
		c := starve(b, shared(b))
		longest, pairs, turns = max(longest, c.longest), pairs+c.pairs(), max(turns, c.meanwhile)
		if n := c.passed(); n > 0 {
			b.Errorf("%d requests entered after one for eight keys and were granted before it", n)
		}
	}
	b.ReportMetric(float64(longest.Milliseconds()), "ms/longest-wait")
	b.ReportMetric(float64(turns), "pairs/longest-wait")
	b.ReportMetric(float64(pairs)/b.Elapsed().Seconds(), "pairs/s")
}
