// SPDX-License-Identifier: MIT

package nemesis

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"shop/loadtest/fault"
)

// switchboard is a system whose components break for a while.
type switchboard struct {
	mu     sync.Mutex
	broken map[string]bool
	most   int
	times  int
}

// breaks is a fault of one component. Undoing it takes a while.
type breaks struct {
	of    *switchboard
	what  string
	hits  int64
	fails error
	slow  time.Duration
}

func (b breaks) set(broken bool) {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	delete(b.of.broken, b.what)
	if broken {
		b.of.broken[b.what] = true
		b.of.times++
	}
	b.of.most = max(b.of.most, len(b.of.broken))
}

func (b breaks) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	e := fault.Event{What: b.what, At: time.Now(), Hits: b.hits}
	b.set(true)
	fault.Wait(ctx, over)
	fault.Wait(context.WithoutCancel(ctx), b.slow)
	b.set(false)
	e.Until = time.Now()
	return []fault.Event{e}, errors.Join(b.fails, ctx.Err())
}

func board(faults ...breaks) (*switchboard, []Part) {
	s := &switchboard{broken: map[string]bool{}}
	var all []Part
	for _, b := range faults {
		b.of = s
		all = append(all, Part{Kind: b.what, Name: b.what, Store: b.what, Shortest: time.Second, Longest: 3 * time.Second, Fault: b})
	}
	return s, all
}

func TestNemesis_RunsTheScheduleAndCountsTheHits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, all := board(breaks{what: "a", hits: 1}, breaks{what: "b", hits: 2}, breaks{what: "c"})
		plan := Plan{Seed: 1, Over: time.Minute, Replicas: 3, Parts: all}
		drawn := plan.Draw()
		events, err := Nemesis{plan}.Inject(t.Context(), time.Minute)
		steps, hits, two := 0, int64(0), int64(0)
		for _, round := range drawn {
			of := map[string]bool{}
			for _, step := range round.Steps {
				if steps++; step.Part.Name != "c" {
					hits++
				}
				of[step.Part.Name] = true
			}
			if of["a"] && of["b"] {
				two++
			}
		}
		seen := fault.Seen(events)
		if err != nil || len(events) != steps || seen["faults"] != hits || seen["faults_at_once"] != two || two == 0 || s.most != 2 || len(s.broken) != 0 {
			t.Errorf("%v: %d events of %d, %v, want %d and %d; %d at once, left %v", err, len(events), steps, seen, hits, two, s.most, s.broken)
		}
	})
}

func TestNemesis_LateRoundsAreSkippedAndNoRoundsOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, all := board(breaks{what: "a", hits: 1, slow: 8 * time.Second})
		began := time.Now()
		events, err := Nemesis{Plan: Plan{Seed: 1, Replicas: 3, Parts: all}}.Inject(t.Context(), time.Minute)
		if err != nil || s.most != 1 || len(events) < 3 || len(events) > 6 || time.Since(began) > time.Minute+9*time.Second {
			t.Errorf("%v: %d events, %d at once, after %v", err, len(events), s.most, time.Since(began))
		}
		for n := 1; n < len(events); n++ {
			if gap := events[n].At.Sub(events[n-1].Until); gap < gapLeast {
				t.Errorf("gap %v", gap)
			}
		}
	})
}

func TestNemesis_AllIsUndoneWhenTheRunIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range int64(20) {
			s, all := board(breaks{what: "a", hits: 1}, breaks{what: "b", hits: 1})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			events, err := Nemesis{Plan: Plan{Seed: seed, Replicas: 3, Parts: all}}.Inject(ctx, time.Hour)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || len(events) != s.times || len(events) == 0 || len(s.broken) != 0 {
				t.Errorf("seed %d: %v; %d events of %d; left %v", seed, err, len(events), s.times, s.broken)
			}
		}
	})
}

func TestNemesis_AFailedFaultEndsItAndCancelsTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := errors.New("no")
		s, all := board(breaks{what: "a", fails: no}, breaks{what: "b", hits: 1})
		began := time.Now()
		_, err := Nemesis{Plan: Plan{Seed: 3, Replicas: 3, Parts: all}}.Inject(t.Context(), time.Hour)
		if !errors.Is(err, no) || errors.Is(err, context.Canceled) || len(s.broken) != 0 || time.Since(began) > time.Minute {
			t.Errorf("%v after %v; left %v", err, time.Since(began), s.broken)
		}
	})
}

func TestNemesis_ALoadThatIsTooShortIsAnError(t *testing.T) {
	_, all := board(breaks{what: "a"})
	if _, err := (Nemesis{Plan: Plan{Replicas: 3, Parts: all}}).Inject(t.Context(), time.Millisecond); err == nil {
		t.Error("no error")
	}
}
