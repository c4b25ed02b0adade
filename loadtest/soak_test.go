// SPDX-License-Identifier: MIT

package loadtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"
)

// injections is a fault that only counts its injections.
type injections struct {
	mu sync.Mutex
	n  int
}

func (i *injections) Inject(context.Context, time.Duration) ([]fault.Event, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.n++
	return []fault.Event{{What: "postgres killed", Hits: 1, Seen: map[string]int64{"restarts": 1}}}, nil
}

func TestShared_AFaultOfSeveralFlowsIsInjectedOnceAndSeenByEach(t *testing.T) {
	of := &injections{}
	together := &shared{Fault: of}
	var all sync.WaitGroup
	var mu sync.Mutex
	hits, seen := int64(0), int64(0)
	for range 3 {
		all.Go(func() {
			events, err := together.Inject(t.Context(), time.Second)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || len(events) != 1 {
				t.Errorf("%v, %v", events, err)
				return
			}
			hits, seen = hits+events[0].Hits, seen+events[0].Seen["restarts"]
		})
	}
	all.Wait()
	if of.n != 1 || hits != 1 || seen != 3 {
		t.Errorf("injected %d times, %d hits, seen by %d flows; want 1, 1, 3", of.n, hits, seen)
	}
}

// A restart that hit no request shows nothing; a shift without a restart needs no hit.
func TestSoak_ARestartMustHitARequest(t *testing.T) {
	s := Scenario{Flow: &Flow{Faults: []FaultSpec{SoakSpec(0)}}, Fault: Soak, Expect: Safe}
	for _, c := range []struct {
		restarts, hit int64
		reasons       int
	}{{0, 0, 0}, {1, 5, 0}, {1, 0, 1}} {
		evidence := map[string]int64{"overlaps": OverlapsLeast, "restarts": c.restarts, "hit": c.hit}
		if got := InconclusiveReasons(s, evidence); len(got) != c.reasons {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestWaitIdle_ReturnsOnlyWhenNoOtherTransactionIsOpen(t *testing.T) {
	db := ownDatabase(t)
	auditor, replica := testbed.Connect(t, db.URL), testbed.Connect(t, db.URL)
	if err := WaitIdle(t.Context(), auditor, QuietWait); err != nil {
		t.Errorf("an idle connection: %v", err)
	}
	testbed.Exec(t, replica, "BEGIN")
	if err := WaitIdle(t.Context(), auditor, 50*time.Millisecond); err == nil {
		t.Error("idle, although a transaction is open")
	}
	idle := make(chan error, 1)
	go func() { idle <- WaitIdle(t.Context(), auditor, QuietWait) }()
	testbed.Exec(t, replica, "ROLLBACK")
	if err := <-idle; err != nil {
		t.Error(err)
	}
}
