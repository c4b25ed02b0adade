// SPDX-License-Identifier: MIT

package loadtest

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"
	"shop/loadtest/site"
	"shop/loadtest/traffic"
)

func TestCutOff_CountsRequestsThatWereUnderWayAtAFaultAndGotNoAnswer(t *testing.T) {
	const second = time.Second
	epoch := time.Now()
	kill := fault.Event{At: epoch.Add(2 * second), Until: epoch.Add(3 * second)}
	attempt := func(start, end time.Duration, status, sends int) traffic.Record {
		return traffic.Record{Attempts: []traffic.Attempt{{Start: start, End: end, Status: status, Sends: sends}}}
	}
	for _, c := range []struct {
		name   string
		record traffic.Record
		want   int64
	}{
		{"cut in the middle", attempt(1*second, 2*second+1, 0, 1), 1},
		{"answered all the same", attempt(1*second, 2*second+1, 201, 1), 0},
		{"over before", attempt(1*second, 2*second-1, 0, 1), 0},
		{"sent after it was undone", attempt(4*second, 5*second, 0, 1), 0},
		{"no listener any more", attempt(2*second, 2*second+1, 0, 0), 0},
	} {
		if got := cutOff([]traffic.Record{c.record}, []fault.Event{kill}, epoch); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	if got := cutOff([]traffic.Record{attempt(1*second, 2*second+1, 0, 1)}, nil, epoch); got != 0 {
		t.Errorf("no fault: %d", got)
	}
}

func TestOnTheWire_CountsAttemptsUnknownAnswersAndRetriesByNetHTTP(t *testing.T) {
	records := []traffic.Record{
		{Attempts: []traffic.Attempt{{Outcome: traffic.Unknown, Sends: 1}, {Outcome: traffic.OK, Sends: 1}}},
		{Attempts: []traffic.Attempt{{Outcome: traffic.Open, Sends: 0}, {Outcome: traffic.Rejected, Sends: 3}}},
	}
	want := map[string]int64{"attempts": 4, "unknown_answers": 1, "silent_retries": 2}
	if diff := cmp.Diff(want, onTheWire(records)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEvidence_OfAFaultIsWhatItHit(t *testing.T) {
	r := &Trial{
		Scenario: Scenario{Flow: &Flow{}}, Replicas: site.At(), Monitored: map[string]int64{"lock_calls": 7},
		Run: &traffic.Run{Retrier: &traffic.Retrier{History: traffic.NewHistory()}},
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

func TestStruck_APauseMustHaveHeldARequestToItsEnd(t *testing.T) {
	const second = time.Second
	epoch := time.Now()
	pause := fault.Event{At: epoch.Add(2 * second), Until: epoch.Add(5 * second), Replica: 1}
	for _, c := range []struct {
		name    string
		attempt traffic.Attempt
		want    bool
	}{
		{"waited for its end", traffic.Attempt{Start: second, End: 6 * second, Status: 201, Sends: 1}, true},
		{"given up by its client meanwhile", traffic.Attempt{Start: second, End: 4 * second, Sends: 1}, true},
		{"answered before", traffic.Attempt{Start: second, End: 2*second + 1, Status: 201, Sends: 1}, false},
		{"sent to the stopped replica", traffic.Attempt{Start: 3 * second, End: 6 * second, Status: 201, Sends: 1}, false},
		{"at another replica", traffic.Attempt{Replica: 1, Start: second, End: 6 * second, Status: 201, Sends: 1}, false},
	} {
		if got := struck([]traffic.Record{{Attempts: []traffic.Attempt{c.attempt}}}, pause, epoch); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestMeanwhile_CountsWhatBecameOfTheRequestsThatMetAFault(t *testing.T) {
	const second = time.Second
	epoch := time.Now()
	events := []fault.Event{{At: epoch.Add(2 * second), Until: epoch.Add(4 * second), Keys: []string{"cut", "lost"}}}
	attempt := func(start, end time.Duration, outcome traffic.Outcome) []traffic.Attempt {
		return []traffic.Attempt{{Start: start, End: end, Outcome: outcome, Sends: 1}}
	}
	records := []traffic.Record{
		{Attempts: attempt(2*second, 3*second, traffic.OK)},
		{Attempts: attempt(1*second, 3*second, traffic.OK)},
		{Attempts: attempt(3*second, 5*second, traffic.Open)},
		{Attempts: attempt(3*second, 5*second, traffic.Unknown)},
		{Attempts: attempt(5*second, 6*second, traffic.OK)},
		{Intent: traffic.Intent{Key: "cut"}, Outcome: traffic.OK},
		{Intent: traffic.Intent{Key: "lost"}, Outcome: traffic.Unknown},
	}
	want := map[string]int64{"hit": 4, "disturbed": 2, "refused_meanwhile": 1, "done_meanwhile": 1, "done_after": 1}
	if diff := cmp.Diff(want, meanwhile(records, events, epoch)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := decidedAfterCut(records, events); n != 1 {
		t.Errorf("%d keys decided of two whose COMMIT was cut, want 1", n)
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
	if reasons := InconclusiveReasons(flow.Safe("redis+row", NoFault), map[string]int64{"overlaps": OverlapsLeast, "lock_acquired": 300}); len(reasons) != 1 {
		t.Errorf("not watched, and only its own count: %v", reasons)
	}
}
