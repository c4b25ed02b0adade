// SPDX-License-Identifier: MIT

package loadtest

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"
	"shop/loadtest/judge"
	"shop/loadtest/site"
	"shop/loadtest/traffic"
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
		found    int
	}{
		{"redis+row", NoFault, 2, 0},
		{"redis+row", NoFault, 1, 1},
		{"redis+row", away, 1, 0},
		{"redis+row", away, 0, 1},
		{"row", NoFault, 0, 0},
	} {
		r := &Trial{Scenario: flow.Safe(c.strategy, c.fault), loaded: len(records), Monitored: map[string]int64{"lock_calls": c.asked}}
		if found := r.unlocked(records); len(found) != c.found {
			t.Errorf("%s under %s, asked for %d locks: %v", c.strategy, c.fault, c.asked, found)
		}
	}
	if reasons := InconclusiveReasons(flow.Safe("redis+row", NoFault), map[string]int64{"overlaps": judge.OverlapsLeast, "lock_acquired": 300}); len(reasons) != 1 {
		t.Errorf("not watched, and only its own count: %v", reasons)
	}
}
