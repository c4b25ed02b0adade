package etcdlock

import (
	"errors"
	"sync"
	"testing"
	"time"

	"shop/locking"
)

// A machine that runs tests may stall for seconds. So tests bound only the time in which
// the process ran, and retry a request whose answer was lost to a stall.

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

// answered reports whether err is an answer of etcd, and not the lack of one.
func answered(err error) bool {
	return !errors.Is(err, errNoAnswer) && !errors.Is(err, locking.ErrOutcomeUnknown)
}

// insist calls request until etcd answers. The argument of request is false in the first call and
// true in every later one.
func insist(request func(again bool) error) (err error) {
	for tries := range 8 {
		if err = request(tries > 0); answered(err) {
			break
		}
	}
	return err
}

// take acquires keys that are free.
func take(t testing.TB, s locking.Store, keys ...string) (lease locking.Lease) {
	t.Helper()
	err := insist(func(again bool) (err error) {
		if again { // the first attempt may have left a waiter: wait for its removal
			lease, err = locking.Acquire(t.Context(), s, locking.Options{}, keys...)
		} else {
			lease, err = s.TryAcquire(t.Context(), keys...)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func wantBusy(t testing.TB, s locking.Store, keys ...string) {
	t.Helper()
	var lease locking.Lease
	err := insist(func(bool) (err error) {
		lease, err = s.TryAcquire(t.Context(), keys...)
		return err
	})
	if !errors.Is(err, locking.ErrBusy) {
		t.Fatalf("acquire %q: got %+v and %v, want ErrBusy", keys, lease, err)
	}
}

func release(t testing.TB, s locking.Store, l locking.Lease) {
	t.Helper()
	err := insist(func(again bool) error {
		err := s.Release(t.Context(), l)
		if again && errors.Is(err, locking.ErrLost) {
			return nil // the first call released it, and its answer was lost
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
