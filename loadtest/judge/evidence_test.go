// SPDX-License-Identifier: MIT

package judge

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shop/loadtest/fault"
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
		if got := meanwhile([]traffic.Record{c.record}, []fault.Event{kill}, epoch)["cut_off"]; got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	if got := meanwhile([]traffic.Record{attempt(1*second, 2*second+1, 0, 1)}, nil, epoch)["cut_off"]; got != 0 {
		t.Errorf("no fault: %d", got)
	}
}

func TestOnTheWire_CountsAttemptsUnknownAnswersAndRetriesByNetHTTP(t *testing.T) {
	records := []traffic.Record{
		{Attempts: []traffic.Attempt{{Outcome: traffic.Unknown, Sends: 1}, {Outcome: traffic.OK, Sends: 1}}},
		{Attempts: []traffic.Attempt{{Outcome: traffic.Open, Sends: 0}, {Outcome: traffic.Rejected, Sends: 3}}},
	}
	want := map[string]int64{"attempts": 4, "unknown_answers": 1, "silent_retries": 2}
	if diff := cmp.Diff(want, OnTheWire(records)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
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
		if got := Struck([]traffic.Record{{Attempts: []traffic.Attempt{c.attempt}}}, pause, epoch); got != c.want {
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
	want := map[string]int64{"hit": 4, "cut_off": 4, "disturbed": 2, "refused_meanwhile": 1, "done_meanwhile": 1, "done_after": 1}
	if diff := cmp.Diff(want, meanwhile(records, events, epoch)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := decidedAfterCut(records, events); n != 1 {
		t.Errorf("%d keys decided of two whose COMMIT was cut, want 1", n)
	}
}
