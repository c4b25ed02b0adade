package loadtest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shop/loadtest/fault"
)

func TestCutOff_CountsRequestsThatWereUnderWayAtAFaultAndGotNoAnswer(t *testing.T) {
	const second = time.Second
	epoch := time.Now()
	kill := fault.Event{At: epoch.Add(2 * second), Until: epoch.Add(3 * second)}
	attempt := func(start, end time.Duration, status, sends int) Record {
		return Record{Attempts: []Attempt{{Start: start, End: end, Status: status, Sends: sends}}}
	}
	for _, c := range []struct {
		name   string
		record Record
		want   int64
	}{
		{"cut in the middle", attempt(1*second, 2*second+1, 0, 1), 1},
		{"answered all the same", attempt(1*second, 2*second+1, 201, 1), 0},
		{"over before", attempt(1*second, 2*second-1, 0, 1), 0},
		{"sent after it was undone", attempt(4*second, 5*second, 0, 1), 0},
		{"no listener any more", attempt(2*second, 2*second+1, 0, 0), 0},
	} {
		if got := cutOff([]Record{c.record}, []fault.Event{kill}, epoch); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	if got := cutOff([]Record{attempt(1*second, 2*second+1, 0, 1)}, nil, epoch); got != 0 {
		t.Errorf("no fault: %d", got)
	}
}

func TestOnTheWire_CountsAttemptsUnknownAnswersAndRetriesByNetHTTP(t *testing.T) {
	records := []Record{
		{Attempts: []Attempt{{Outcome: Unknown, Sends: 1}, {Outcome: OK, Sends: 1}}},
		{Attempts: []Attempt{{Outcome: Open, Sends: 0}, {Outcome: Rejected, Sends: 3}}},
	}
	want := map[string]int64{"attempts": 4, "unknown_answers": 1, "silent_retries": 2}
	if diff := cmp.Diff(want, onTheWire(records)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEvidence_OfAFaultIsWhatItHit(t *testing.T) {
	const away, lost Fault = "redis-down", "lock-lost"
	r := &Trial{
		Scenario: Scenario{Flow: &Flow{Faults: []FaultSpec{{Fault: away, Outage: true}}}, Fault: away}, Replicas: &Replicas{Counters: NewCounters(nil)}, acquired: 5,
		Run: &Run{Retrier: &Retrier{History: NewHistory()}}, events: []fault.Event{{Seen: map[string]int64{"redis_kills": 1}}},
	}
	r.Replicas.Counters.kept["lock_acquired"] = 7
	if e := r.evidence(nil); e["redis_kills"] != 1 || e["lock_acquired_after"] != 2 {
		t.Errorf("redis-down: %v", e)
	}
	r.Scenario.Fault, r.events = Crash, []fault.Event{{Seen: map[string]int64{"crashes": 1}}, {Seen: map[string]int64{"crashes": 1}}}
	if e := r.evidence(nil); e["crashes"] != 2 {
		t.Errorf("crash: %v", e)
	}
	r.Scenario.Fault, r.events = lost, []fault.Event{{Seen: map[string]int64{"locks_deleted": 40}}}
	if e := r.evidence(nil); e["locks_deleted"] != 40 {
		t.Errorf("lock-lost: %v", e)
	}
}
