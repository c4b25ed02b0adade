package etcdlock

import (
	"errors"
	"sync"
	"time"

	"shop/locking"
)

// A machine that runs tests may stand still for seconds. What a test bounds is
// the time in which it ran; and an answer that such a stall has cost is asked for again.

// stalls are when this process did not run, as far as a tick each 5 ms can tell.
var stalls struct {
	mu   sync.Mutex
	last time.Time
	list []stall
}

type stall struct{ from, to time.Time }

const stallMin = 50 * time.Millisecond

// watchStalls runs beside all tests.
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
	noteStall() // one that has just ended
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

// told reports whether err is an answer of etcd, and not the lack of one.
func told(err error) bool {
	return !errors.Is(err, errNoAnswer) && !errors.Is(err, locking.ErrOutcomeUnknown)
}

// insist repeats ask until etcd answers. The argument of ask is false in the first
// try and true in each later one.
func insist(ask func(again bool) error) (err error) {
	for tries := range 8 {
		if err = ask(tries > 0); told(err) {
			break
		}
	}
	return err
}
