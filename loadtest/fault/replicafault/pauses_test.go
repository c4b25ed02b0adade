// SPDX-License-Identifier: MIT

package replicafault

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"shop/loadtest/fault"

	"github.com/google/go-cmp/cmp"
)

// sleepers are replicas that record for how long they were stopped.
type sleepers struct {
	mu    sync.Mutex
	since map[int]time.Time
	slept map[int][]time.Duration
	fails bool
}

func (s *sleepers) Pause(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since[n] = time.Now()
	if s.fails {
		return errors.New("no")
	}
	return nil
}

func (s *sleepers) Resume(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slept[n] = append(s.slept[n], time.Since(s.since[n]))
	delete(s.since, n)
	return nil
}

func newSleepers() *sleepers {
	return &sleepers{since: map[int]time.Time{}, slept: map[int][]time.Duration{}}
}

func TestPauses_LastOneAndAHalfToFiveTTLsAndSpareOneReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSleepers()
		events, err := Pauses{Replicas: s, TTL: 2 * time.Second}.Inject(t.Context(), 66*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		want := map[int][]time.Duration{1: {10 * time.Second}}
		for d := 3 * time.Second; d <= 10*time.Second; d += time.Second {
			want[0] = append(want[0], d)
		}
		want[0] = append(want[0], 3*time.Second) // there is time for one more of the shortest
		if diff := cmp.Diff(want, s.slept); diff != "" || len(s.since) != 0 {
			t.Errorf("%d still stopped (-want +got):\n%s", len(s.since), diff)
		}
		if n := fault.Seen(events)["pauses"]; n != 10 {
			t.Errorf("%d pauses", n)
		}
	})
}

func TestPauses_ReplicasAreResumedHoweverTheFaultEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s := newSleepers()
		events, err := Pauses{Replicas: s, TTL: 2 * time.Second}.Inject(ctx, time.Minute)
		if !errors.Is(err, context.DeadlineExceeded) || len(s.since) != 0 || len(s.slept) != 2 || len(fault.Seen(events)) != 0 {
			t.Errorf("%v, slept %v, still stopped %v, %v", err, s.slept, s.since, fault.Seen(events))
		}
		s = newSleepers()
		s.fails = true
		if events, err = (Pauses{Replicas: s, TTL: time.Second}).Inject(t.Context(), time.Minute); err == nil || len(s.since) != 0 || len(fault.Seen(events)) != 0 {
			t.Errorf("%v, still stopped %v, %v", err, s.since, fault.Seen(events))
		}
	})
}

func TestPauses_AReplicaWithoutALockIsResumedAndStoppedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := newSleepers(), time.Now()
		aim := func(context.Context) ([]string, error) {
			switch since := time.Since(began); {
			case since < 50*time.Millisecond:
				return nil, nil
			case since < time.Second:
				return []string{"held"}, nil
			}
			return []string{"of another replica"}, nil
		}
		events, err := Pauses{Replicas: s, TTL: 2 * time.Second, Aim: aim}.Inject(t.Context(), 4*time.Second)
		seen := fault.Seen(events)
		if err != nil || seen["pauses"] != 2 || seen["outlived"] != 2 || len(s.since) != 0 || len(s.slept[0]) < 4 || len(s.slept[1]) < 4 {
			t.Errorf("%v: %v, slept %v, still stopped %v", err, seen, s.slept, s.since)
		}
	})
}

func TestPauses_APauseHasOutlivedOnlyALockThatWasHeldAndIsLost(t *testing.T) {
	for name, locks := range map[string]func(since time.Duration) ([]string, error){
		"held to the end":      func(time.Duration) ([]string, error) { return []string{"a"}, nil },
		"of a running replica": func(since time.Duration) ([]string, error) { return []string{since.String()}, nil },
		"not known at the end": func(since time.Duration) ([]string, error) {
			if since > time.Second {
				return nil, errors.New("no primary")
			}
			return []string{"a"}, nil
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			aim := func(context.Context) ([]string, error) { return locks(time.Since(began)) }
			events, err := Pauses{Replicas: newSleepers(), TTL: 2 * time.Second, Aim: aim}.Inject(t.Context(), 4*time.Second)
			if seen := fault.Seen(events); err != nil || seen["pauses"] != 2 || seen["outlived"] != 0 {
				t.Errorf("%s: %v: %v", name, err, seen)
			}
		})
	}
}

func TestPauses_OnlyAReplicaInABatchIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSleepers()
		inBatch := func(_ context.Context, n int, within time.Duration) (bool, error) { // that of replica 2 never comes
			if time.Sleep(within / 2); n == 1 {
				return false, nil
			}
			return true, s.Pause(n)
		}
		events, err := Pauses{Replicas: s, TTL: 2 * time.Second, InBatch: inBatch}.Inject(t.Context(), 6*time.Second)
		if seen := fault.Seen(events); err != nil || seen["pauses"] != 1 || len(events) != 1 || len(s.since) != 0 {
			t.Errorf("%v: %+v, still stopped %v", err, events, s.since)
		}
	})
}
