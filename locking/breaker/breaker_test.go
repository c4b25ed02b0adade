// SPDX-License-Identifier: MIT

package breaker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errSilent = errors.New("no answer")

// server answers probes with err, after a time.
type server struct {
	mu    sync.Mutex
	err   error
	takes time.Duration
	asked int
}

func (s *server) probe(ctx context.Context) error {
	s.mu.Lock()
	s.asked++
	err, takes := s.err, s.takes
	s.mu.Unlock()
	select {
	case <-time.After(takes):
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *server) set(err error, takes time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.takes, s.asked = err, takes, 0
}

func open(t *testing.T, grace time.Duration) (*Breaker, *server, *[]error) {
	t.Helper()
	s, changes := &server{}, &[]error{}
	return New(Config{
		Probe: s.probe, Timeout: 200 * time.Millisecond, Every: time.Second, Grace: grace,
		Changed: func(why error) { *changes = append(*changes, why) },
	}), s, changes
}

func TestBreaker_OpensAtAFailureAndClosesAtAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s, changes := open(t, 0)
		for range 3 {
			if err := b.Allow(t.Context()); err != nil || s.asked != 0 {
				t.Errorf("closed: %v, %d probes", err, s.asked)
			}
		}
		s.set(errSilent, 0)
		b.Failed(errSilent)
		b.Failed(errSilent) // of a request that was under way
		for range 100 {     // ten seconds
			if err := b.Allow(t.Context()); !errors.Is(err, errSilent) || !b.Open() {
				t.Errorf("got %v, open %t", err, b.Open())
			}
			time.Sleep(100 * time.Millisecond)
		}
		if s.asked < 8 || s.asked > 10 {
			t.Errorf("%d probes in ten seconds, want one each second", s.asked)
		}
		s.set(nil, 0)
		time.Sleep(time.Second + 1)
		if err := b.Allow(t.Context()); err != nil || b.Open() || s.asked != 1 {
			t.Errorf("got %v, open %t, %d probes", err, b.Open(), s.asked)
		}
		if len(*changes) != 2 || !errors.Is((*changes)[0], errSilent) || (*changes)[1] != nil {
			t.Errorf("changes %v, want opened and closed", *changes)
		}
	})
}

func TestBreaker_SendsOneBoundedProbeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s, _ := open(t, 0)
		b.Failed(errSilent)
		s.set(nil, time.Hour)
		time.Sleep(time.Second + 1)
		begin, waited := time.Now(), make(chan time.Duration, 50)
		var all sync.WaitGroup
		for range cap(waited) {
			all.Go(func() {
				if err := b.Allow(t.Context()); err == nil {
					t.Error("allowed")
				}
				waited <- time.Since(begin)
			})
		}
		all.Wait()
		close(waited)
		slow := 0
		for w := range waited {
			if w == 200*time.Millisecond {
				slow++
			} else if w != 0 {
				t.Errorf("waited %v", w)
			}
		}
		if slow != 1 || s.asked != 1 {
			t.Errorf("%d callers waited for %d probes, want 1 and 1", slow, s.asked)
		}
	})
}

// The probe of a caller that leaves has no result, and the next caller may send one.
func TestBreaker_ProbeWhoseCallerLeftIsNeitherAnswerNorFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s, _ := open(t, 0)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		s.set(nil, time.Millisecond)
		if err := b.Check(gone); err == nil || b.Open() {
			t.Errorf("closed: %v, open %t", err, b.Open())
		}
		b.Failed(errSilent)
		time.Sleep(time.Second + 1)
		if err := b.Allow(gone); err == nil || !b.Open() {
			t.Errorf("half-open: %v, open %t", err, b.Open())
		}
		if err := b.Allow(t.Context()); err != nil || b.Open() {
			t.Errorf("the next caller: %v, open %t", err, b.Open())
		}
	})
}

func TestBreaker_GraceCountsFromTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s, _ := open(t, 3*time.Second)
		_ = b.Check(t.Context())
		s.set(errSilent, 0)
		for begin := time.Now(); time.Since(begin) < 3*time.Second; time.Sleep(500 * time.Millisecond) {
			if _ = b.Check(t.Context()); b.Open() {
				t.Errorf("open after %v", time.Since(begin))
			}
		}
		if _ = b.Check(t.Context()); !b.Open() {
			t.Error("closed after the grace")
		}
		never, silent, _ := open(t, 3*time.Second)
		silent.set(errSilent, 0)
		if _ = never.Check(t.Context()); !never.Open() {
			t.Error("closed, although the server has never answered")
		}
	})
}
