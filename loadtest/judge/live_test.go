// SPDX-License-Identifier: MIT

package judge

import (
	"testing"
	"time"

	"shop/loadtest/fault"
	"shop/loadtest/traffic"
)

func bought(at time.Duration) traffic.Record {
	return traffic.Record{Intent: traffic.Intent{Action: "buy"}, Outcome: traffic.OK, Attempts: []traffic.Attempt{{Outcome: traffic.OK, End: at}}}
}

func TestStalls_ASuccessMustComeWithinTheBoundOfEachFaultAndOfItsEnd(t *testing.T) {
	h := traffic.NewHistory()
	refused := traffic.Record{Intent: traffic.Intent{Action: "buy"}, Outcome: traffic.Rejected, Attempts: []traffic.Attempt{{Outcome: traffic.Rejected, End: 1100 * time.Millisecond}}}
	event := func(at, until time.Duration) fault.Event {
		return fault.Event{What: "redis killed", At: h.Epoch.Add(at), Until: h.Epoch.Add(until)}
	}
	const second = time.Second
	for _, c := range []struct {
		name    string
		records []traffic.Record
		event   fault.Event
		stalls  int
	}{
		{"success soon after both", []traffic.Record{bought(2 * second), bought(4 * second)}, event(1*second, 3*second), 0},
		{"on the bound", []traffic.Record{bought(3 * second)}, event(1*second, 2*second), 0},
		{"too late after the fault", []traffic.Record{bought(4 * second)}, event(1*second, 3*second), 1},
		{"only before it", []traffic.Record{bought(1 * second)}, event(2*second, 3*second), 2},
		{"nothing after its end", []traffic.Record{bought(2 * second)}, event(1*second, 3*second), 1},
		{"refusals are no sign of life", []traffic.Record{refused}, event(1*second, 1*second), 2},
		{"an end of something is no sign of life", []traffic.Record{{Intent: traffic.Intent{Ends: true}, Outcome: traffic.OK, Attempts: []traffic.Attempt{{Outcome: traffic.OK, End: 2 * second}}}}, event(1*second, 1*second), 2},
		{"an answer sent again is no sign of life", []traffic.Record{{Outcome: traffic.OK, Attempts: []traffic.Attempt{{Outcome: traffic.OK, End: second / 2}, {Outcome: traffic.OK, End: 2 * second}}}}, event(1*second, 1*second), 2},
		{"nothing at all: everything 503", nil, event(1*second, 2*second), 2},
	} {
		stalls := Stalls(h, c.records, []fault.Event{c.event}, Always(2*second))
		if len(stalls) != c.stalls {
			t.Errorf("%s: %d stalls %v, want %d", c.name, len(stalls), stalls, c.stalls)
		}
	}
}

// At a low rate no write may be pending for a while: nothing can succeed before the next one is sent.
func TestStalls_TheBoundCountsFromWhenARequestWaits(t *testing.T) {
	h := traffic.NewHistory()
	const second = time.Second
	kill := []fault.Event{{What: "a kill", At: h.Epoch.Add(second), Until: h.Epoch.Add(2 * second)}}
	planned := func(at, took time.Duration) traffic.Record {
		r := bought(at + took)
		r.Planned = at
		return r
	}
	givenUp := traffic.Record{Intent: traffic.Intent{GivesUp: true}, Outcome: traffic.Open, Attempts: []traffic.Attempt{{Outcome: traffic.Open, End: second / 2}}}
	ended := planned(0, 20*second)
	ended.Ends = true
	for name, c := range map[string]struct {
		records []traffic.Record
		stalls  int
	}{
		"the next one comes after the bound, and succeeds at once": {[]traffic.Record{bought(second / 2), planned(10*second, second)}, 0},
		"… and succeeds late":             {[]traffic.Record{bought(second / 2), planned(10*second, 3*second)}, 2},
		"one has waited all the time":     {[]traffic.Record{planned(0, 11*second), planned(10*second, second/2)}, 2},
		"what was given up does not wait": {[]traffic.Record{givenUp, planned(10*second, second)}, 0},
		"nor does the end of something":   {[]traffic.Record{ended, planned(10*second, second)}, 0},
	} {
		if got := Stalls(h, c.records, kill, Always(2*second)); len(got) != c.stalls {
			t.Errorf("%s: %d stalls %v, want %d", name, len(got), got, c.stalls)
		}
	}
}

func TestStalls_OfAScheduleTheTimeOfFaultsThatFollowIsNotCounted(t *testing.T) {
	h := traffic.NewHistory()
	const second = time.Second
	away := func(from, to time.Duration) fault.Event {
		return fault.Event{What: "a store away", At: h.Epoch.Add(from), Until: h.Epoch.Add(to)}
	}
	row := []fault.Event{away(5*second, 8*second), away(second, 4*second), away(30*second, 31*second)} // in any order
	last := bought(31500 * time.Millisecond)
	for at, want := range map[time.Duration]int{
		8500 * time.Millisecond: 0,
		11 * second:             2, // too late for the begin of both faults: 10 s, less the 3 s of the other fault, and 6 s
	} {
		records := []traffic.Record{bought(at), last}
		if got := Stalls(h, records, row, Among(row, h.Epoch, 5*second)); len(got) != want {
			t.Errorf("a success at %v: %d stalls %v, want %d", at, len(got), got, want)
		}
		if got := Stalls(h, records, row, Always(5*second)); len(got) <= want {
			t.Errorf("a success at %v: %d stalls of faults that stand alone", at, len(got))
		}
	}
}

func TestRefusedReads_AReadOfWhatTheReaderOwnsMustNotBeRefused(t *testing.T) {
	refused := func(key string, i traffic.Intent) traffic.Record {
		i.Key = key
		return traffic.Record{Intent: i, Outcome: traffic.Rejected, Attempts: []traffic.Attempt{{Outcome: traffic.Rejected, Problem: "not-found", Status: 404}}}
	}
	got := RefusedReads([]traffic.Record{
		refused("own", traffic.Intent{Reads: true}), refused("other", traffic.Intent{Reads: true, Refusals: []string{"not-found"}}), refused("write", traffic.Intent{}),
		{Intent: traffic.Intent{Key: "read", Reads: true}, Outcome: traffic.OK},
	})
	if len(got) != 1 || got[0] != "own: rejected (404 not-found)" {
		t.Errorf("%q; want the read of what is the reader's", got)
	}
}

// Only a duplicate's answer says that another request had the effect.
func TestFirstDuplicates_AreKeysThatNoOtherAnswerDecided(t *testing.T) {
	done, again := traffic.Attempt{Outcome: traffic.OK, Status: 201}, traffic.Attempt{Outcome: traffic.OK, Status: 409, Duplicate: true}
	refused, lost := traffic.Attempt{Outcome: traffic.Rejected, Status: 422}, traffic.Attempt{Outcome: traffic.Unknown}
	for _, c := range []struct {
		name     string
		attempts []traffic.Attempt
		first    bool
	}{
		{"after a success", []traffic.Attempt{done, again, again}, false},
		{"before the answer of the first", []traffic.Attempt{again, done}, false},
		{"after a success that was not answered", []traffic.Attempt{lost, again}, false},
		{"without any success", []traffic.Attempt{again, again}, true},
		{"after a refusal", []traffic.Attempt{refused, again}, true},
	} {
		h := traffic.NewHistory()
		h.Intend(traffic.Intent{Key: "k"})
		for _, a := range c.attempts {
			a.Key = "k"
			h.Add(a, []byte("body"))
		}
		if found := FirstDuplicates(h.Records()); (len(found) == 1) != c.first {
			t.Errorf("%s: %q", c.name, found)
		}
	}
}
