// SPDX-License-Identifier: MIT

package loadtest

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"
	"shop/loadtest/judge"
	"shop/loadtest/site"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

func TestEvidence_OfAFaultIsWhatItHit(t *testing.T) {
	r := &Trial{
		Scenario: Scenario{Flow: &Flow{}}, Replicas: site.At(), Monitored: map[string]int64{"lock_calls": 7},
		Run: &traffic.Run{History: traffic.NewHistory()},
	}
	page := testbed.Serve(t, 1, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, testbed.Metrics) })
	if r.Replicas.Counters.Keep(t.Context(), strings.TrimPrefix(page[0], "http://")); r.Replicas.Counters.Sum()["lock_busy"] == 0 {
		t.Fatal("nothing was counted")
	}
	epoch := r.History.Epoch
	kill := func(replica int, at time.Duration) fault.Event {
		return fault.Event{At: epoch.Add(at), Until: epoch.Add(at + time.Second), Seen: map[string]int64{"crashes": 1}, Replica: replica, Ends: true}
	}
	cut := traffic.Record{Attempts: []traffic.Attempt{{Replica: 1, Start: time.Second, End: 2 * time.Second, Sends: 1}}}
	r.events = []fault.Event{{Seen: map[string]int64{"redis_kills": 1}}, {Seen: map[string]int64{"redis_kills": 1}}}
	e := r.evidence([]traffic.Record{cut})
	if e["redis_kills"] != 2 || e["lock_calls"] != 7 {
		t.Errorf("the sum of all events, and what the monitor saw: %v", e)
	}
	if _, is := e["lock_busy"]; is {
		t.Error("what replicas count about themselves is evidence")
	}
	for _, c := range []struct {
		name  string
		event fault.Event
		want  int64
	}{
		{"a kill that cut a request off", kill(2, 1500*time.Millisecond), 1},
		{"a kill of another replica", kill(1, 1500*time.Millisecond), 0},
		{"a kill when it was idle", kill(2, 3*time.Second), 0},
	} {
		r.events = []fault.Event{c.event}
		if n := r.evidence([]traffic.Record{cut})["crashes"]; n != c.want {
			t.Errorf("%s: counted %d times, want %d", c.name, n, c.want)
		}
	}
}

// The lock service's own count exposes a lock that only counts its own events.
func TestUnlocked_AStrategyThatRequestsNoLocksIsFoundAlsoDuringAnOutage(t *testing.T) {
	const away Fault = "redis-down"
	flow := &Flow{Locked: func(strategy string) bool { return strategy == "redis+row" }, Faults: []FaultSpec{{Fault: away, Outage: true}}}
	records := []traffic.Record{{Outcome: traffic.OK}, {Outcome: traffic.OK}, {Outcome: traffic.Rejected}, {Intent: traffic.Intent{Reads: true}, Outcome: traffic.OK}}
	for _, c := range []struct {
		strategy string
		fault    Fault
		asked    int64
		found    int64
	}{
		{"redis+row", NoFault, 2, 0},
		{"redis+row", NoFault, 1, 1},
		{"redis+row", away, 1, 0},
		{"redis+row", away, 0, 1},
		{"row", NoFault, 0, -1}, // not judged
	} {
		r := &Trial{Scenario: flow.Safe(c.strategy, c.fault), loaded: len(records), Monitored: map[string]int64{"lock_calls": c.asked}}
		found := invariant.Findings{}
		r.judged(found, records)
		n := found["I-LOCKED"].Count
		if _, judged := found["I-LOCKED"]; !judged {
			n = -1
		}
		if n != c.found {
			t.Errorf("%s under %s, asked for %d locks: %v", c.strategy, c.fault, c.asked, found)
		}
	}
	flow.LockCalls = 2
	for calls, want := range map[int64]int64{3: 1, 4: 0} {
		r := &Trial{Scenario: flow.Safe("redis+row", NoFault), loaded: len(records), Monitored: map[string]int64{"lock_calls": calls}}
		found := invariant.Findings{}
		if r.judged(found, records); found["I-LOCKED"].Count != want {
			t.Errorf("%d calls for two locks: %v", calls, found)
		}
	}
	enough := map[string]int64{"overlaps": judge.OverlapsLeast, "samples": 5}
	for name, reasons := range map[string]int{"lock_acquired": 1, "lock_calls": 0} { // it is not watched, and has only its own count
		seen := maps.Clone(enough)
		seen[name] = 300
		if got := InconclusiveReasons(flow.Safe("redis+row", NoFault), seen); len(got) != reasons {
			t.Errorf("with %s: %v", name, got)
		}
	}
}

func TestJudged_AnInternalErrorNeedsAFault(t *testing.T) {
	records := []traffic.Record{{Intent: traffic.Intent{Key: "k"}, Attempts: []traffic.Attempt{{Status: 500, Problem: "internal"}, {Status: 502}, {Status: 201}}}}
	for fault, want := range map[Fault]int64{NoFault: 1, Crash: 0} {
		found := invariant.Findings{}
		r := &Trial{Scenario: Scenario{Flow: &Flow{}, Fault: fault}}
		if r.judged(found, records); found["I-ERROR"].Count != want {
			t.Errorf("%s: %v", fault, found)
		}
	}
}
