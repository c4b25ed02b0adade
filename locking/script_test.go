package locking_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"shop/locking"
)

// ttl of the scripted Store. Its Until has no margin, so that a test can say
// exactly when the trust ends and when the server would forget.
const ttl = 6 * time.Second

// script is a Store in memory that plays what a test tells it to. It stands for
// the interface, not for a server: what servers do is tested by locktest.
type script struct {
	acquire func(ctx context.Context, n int) error // of attempt n, from 0; nil: granted
	renew   func(ctx context.Context, n int) error // nil: renewed
	release func(ctx context.Context) error        // nil: released
	until   func(sent time.Time) time.Time         // nil: sent + ttl

	mu       sync.Mutex
	acquires []time.Time
	renewals []time.Time // when each was sent
	leases   []locking.Lease
	released []locking.Lease
	underWay int // requests
}

func (s *script) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	defer s.enter()()
	sent := time.Now()
	n := s.note(&s.acquires)
	if s.acquire != nil {
		if err := s.acquire(ctx, n); err != nil {
			return locking.Lease{}, err
		}
	}
	return locking.Lease{Keys: keys, Owner: fmt.Sprint("owner-", n), Fence: locking.Fence(n + 1), Until: s.trust(sent)}, nil
}

func (s *script) Renew(ctx context.Context, l locking.Lease) (locking.Lease, error) {
	defer s.enter()()
	sent := time.Now()
	n := s.note(&s.renewals)
	s.mu.Lock()
	s.leases = append(s.leases, l)
	s.mu.Unlock()
	if s.renew != nil {
		if err := s.renew(ctx, n); err != nil {
			return l, err
		}
	}
	l.Until = s.trust(sent)
	return l, nil
}

func (s *script) Release(ctx context.Context, l locking.Lease) error {
	defer s.enter()()
	s.mu.Lock()
	s.released = append(s.released, l)
	s.mu.Unlock()
	if s.release != nil {
		return s.release(ctx)
	}
	return nil
}

func (s *script) trust(sent time.Time) time.Time {
	if s.until != nil {
		return s.until(sent)
	}
	return sent.Add(ttl)
}

// note writes down that a request was sent, and which one it is.
func (s *script) note(list *[]time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	*list = append(*list, time.Now())
	return len(*list) - 1
}

// enter counts a request under way until it leaves.
func (s *script) enter() (leave func()) {
	s.count(1)
	return func() { s.count(-1) }
}

func (s *script) count(d int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay += d
}

// over checks what is true after each Do: nothing of it goes on, and what it held was given back n times.
func (s *script) over(t *testing.T, released int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.underWay != 0 {
		t.Errorf("%d requests are still under way", s.underWay)
	}
	if len(s.released) != released {
		t.Errorf("released %d times, want %d", len(s.released), released)
	}
}

// after gives the times of list as distances from start.
func after(start time.Time, list []time.Time) []time.Duration {
	var out []time.Duration
	for _, at := range list {
		out = append(out, at.Sub(start))
	}
	return out
}

// work sleeps until d has passed, or ctx ended, and says why it ended.
func work(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
