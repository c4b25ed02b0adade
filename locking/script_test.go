// SPDX-License-Identifier: MIT

package locking_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"shop/locking"
)

// ttl of the scripted Store. Its Until has no margin, so that a test knows to the
// nanosecond when the trust ends and when the lease would expire at a server.
const ttl = 6 * time.Second

var one = []string{"account/42"}

// script is a Store in memory whose answers the test sets. It stands for the interface,
// not for a server: locktest tests Stores on real servers.
type script struct {
	acquire func(ctx context.Context, n int) error // of attempt n, from 0; nil: granted at once
	renew   func(ctx context.Context, n int) error // nil: renewed at once
	release func(ctx context.Context) error        // nil: released at once
	until   func(sent time.Time) time.Time         // nil: sent + ttl

	mu       sync.Mutex
	start    time.Time       // of the first attempt
	acquires []time.Duration // when each request was sent, from start
	renewals []time.Duration
	releases []time.Duration
	underWay int
	overlap  bool            // Release was sent while another request was under way
	granted  locking.Lease   // by the last answer
	foreign  []locking.Lease // in requests, different from the granted one
}

func (s *script) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	sent, n, leave := s.enter(&s.acquires)
	defer leave()
	if s.acquire != nil {
		if err := s.acquire(ctx, n); err != nil {
			return locking.Lease{}, err
		}
	}
	l := locking.Lease{Keys: keys, Owner: fmt.Sprint("owner-", n), Fence: locking.Fence(n + 1), Until: s.trust(sent)}
	s.grant(l)
	return l, nil
}

func (s *script) Renew(ctx context.Context, l locking.Lease) (locking.Lease, error) {
	sent, n, leave := s.enter(&s.renewals)
	defer leave()
	s.check(l)
	if s.renew != nil {
		if err := s.renew(ctx, n); err != nil {
			return l, err
		}
	}
	l.Until = s.trust(sent)
	return l, nil
}

func (s *script) Release(ctx context.Context, l locking.Lease) error {
	_, _, leave := s.enter(&s.releases)
	defer leave()
	s.check(l)
	s.overlap = s.overlap || s.underWay > 1
	if s.release != nil {
		return s.release(ctx)
	}
	return nil
}

func (s *script) grant(l locking.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.granted = l
}

// check records a lease that a server would not recognize: its keys, owner or fence
// differ from those of the grant.
func (s *script) check(l locking.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(l.Keys, s.granted.Keys) || l.Owner != s.granted.Owner || l.Fence != s.granted.Fence {
		s.foreign = append(s.foreign, l)
	}
}

func (s *script) trust(sent time.Time) time.Time {
	if s.until != nil {
		return s.until(sent)
	}
	return sent.Add(ttl)
}

// enter records when a request was sent, and that it is under way until leave.
func (s *script) enter(list *[]time.Duration) (sent time.Time, n int, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent = time.Now()
	if s.start.IsZero() {
		s.start = sent
	}
	*list = append(*list, sent.Sub(s.start))
	s.underWay++
	return sent, len(*list) - 1, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.underWay--
	}
}

// lasted is the time since the first attempt.
func (s *script) lasted() time.Duration { return time.Since(s.start) }

// callerKey is the key of a value in the ctx of the caller of Do.
type callerKey struct{}

// played is the result of one Do.
type played struct {
	err    error
	lasted time.Duration
	events []locking.Event
}

// kinds are the kinds of all events except the renewals.
func (p played) kinds() (kinds []locking.Kind) {
	for _, e := range p.events {
		if e.Kind != locking.Renewed && e.Kind != locking.RenewFailed {
			kinds = append(kinds, e.Kind)
		}
	}
	return kinds
}

// play runs one Do on the fake clock, and checks what holds for every Do: no request is
// left under way (synctest also checks that no goroutine is), the keys are released at
// most once, after fn and after the last renewal, and the events have one end.
func (s *script) play(t *testing.T, o locking.Options, fn func(context.Context, locking.Lease) error) (p played) {
	t.Helper()
	var mu sync.Mutex
	o.Observer = locking.Observers(o.Observer, func(e locking.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Ctx == nil || e.Ctx.Value(callerKey{}) == nil {
			t.Errorf("%s: its Ctx lacks the values of the caller's", e.Kind)
		}
		e.Ctx = nil // so that a test can compare events
		p.events = append(p.events, e)
	})
	var returned time.Duration
	synctest.Test(t, func(t *testing.T) {
		p.err = locking.Do(context.WithValue(t.Context(), callerKey{}, true), s, o, one, func(ctx context.Context, l locking.Lease) error {
			defer func() { returned = s.lasted() }()
			return fn(ctx, l)
		})
		p.lasted = s.lasted()
		if s.underWay != 0 {
			t.Errorf("%d requests are still under way", s.underWay)
		}
	})
	if len(s.releases) > 1 || len(s.releases) == 1 && s.releases[0] < returned {
		t.Errorf("released at %v; fn returned at %v", s.releases, returned)
	}
	if s.overlap {
		t.Error("released while a renewal was under way")
	}
	if len(s.foreign) > 0 {
		t.Errorf("granted %+v, renewed or released %+v", s.granted, s.foreign)
	}
	p.checkEvents(t)
	return p
}

// checkEvents checks that the last event, and only that one, is an end, and that at
// most one Lost comes before it.
func (p played) checkEvents(t *testing.T) {
	t.Helper()
	n := map[locking.Kind]int{}
	for _, e := range p.events {
		n[e.Kind]++
	}
	ends := n[locking.Released] + n[locking.Left]
	last := p.events[len(p.events)-1].Kind
	if n[locking.Acquired] != ends || ends == 1 && last != locking.Released && last != locking.Left {
		t.Errorf("acquired %d times, %d ends, last %s", n[locking.Acquired], ends, last)
	}
	if n[locking.Lost] > 1 {
		t.Errorf("lost %d times", n[locking.Lost])
	}
}
