// SPDX-License-Identifier: MIT

package etcdlock

import (
	"sync"
	"time"
)

// A machine that runs tests may stall for seconds. So tests bound only the time in which
// the process ran.

// stalls are the times in which this process did not run, as a ticker of 5 ms detects them.
var stalls struct {
	mu   sync.Mutex
	last time.Time
	list []stall
}

type stall struct{ from, to time.Time }

const stallMin = 50 * time.Millisecond

// watchStalls runs during all tests.
func watchStalls() {
	for range time.Tick(5 * time.Millisecond) {
		noteStall()
	}
}

func noteStall() {
	stalls.mu.Lock()
	defer stalls.mu.Unlock()
	now := time.Now()
	if !stalls.last.IsZero() && now.Sub(stalls.last) > stallMin {
		stalls.list = append(stalls.list, stall{stalls.last, now})
	}
	stalls.last = now
}

// ranSince is time.Since without the stalls.
func ranSince(at time.Time) time.Duration {
	noteStall() // a stall may have just ended
	stalls.mu.Lock()
	defer stalls.mu.Unlock()
	ran := time.Since(at)
	for _, s := range stalls.list {
		if s.from.Before(at) {
			s.from = at
		}
		ran -= max(0, s.to.Sub(s.from))
	}
	return ran
}
