// SPDX-License-Identifier: MIT

package loadtest

import (
	"testing"
	"time"

	"shop/loadtest/fault"
)

func bought(at time.Duration) Record {
	return Record{Intent: Intent{Action: "buy"}, Outcome: OK, Attempts: []Attempt{{Outcome: OK, End: at}}}
}

func TestStalls_ASuccessMustComeWithinTheBoundOfEachFaultAndOfItsEnd(t *testing.T) {
	h := NewHistory()
	refused := Record{Intent: Intent{Action: "buy"}, Outcome: Rejected, Attempts: []Attempt{{Outcome: Rejected, End: 1100 * time.Millisecond}}}
	event := func(at, until time.Duration) fault.Event {
		return fault.Event{What: "redis killed", At: h.Epoch.Add(at), Until: h.Epoch.Add(until)}
	}
	const second = time.Second
	for _, c := range []struct {
		name    string
		records []Record
		event   fault.Event
		stalls  int
	}{
		{"success soon after both", []Record{bought(2 * second), bought(4 * second)}, event(1*second, 3*second), 0},
		{"on the bound", []Record{bought(3 * second)}, event(1*second, 2*second), 0},
		{"too late after the fault", []Record{bought(4 * second)}, event(1*second, 3*second), 1},
		{"only before it", []Record{bought(1 * second)}, event(2*second, 3*second), 2},
		{"nothing after its end", []Record{bought(2 * second)}, event(1*second, 3*second), 1},
		{"refusals are no sign of life", []Record{refused}, event(1*second, 1*second), 2},
		{"an end of something is no sign of life", []Record{{Intent: Intent{Ends: true}, Outcome: OK, Attempts: []Attempt{{Outcome: OK, End: 2 * second}}}}, event(1*second, 1*second), 2},
		{"nothing at all: everything 503", nil, event(1*second, 2*second), 2},
	} {
		stalls := Stalls(h, c.records, []fault.Event{c.event}, 2*second)
		if len(stalls) != c.stalls {
			t.Errorf("%s: %d stalls %v, want %d", c.name, len(stalls), stalls, c.stalls)
		}
	}
}

// At a low rate no write may be pending for a while: nothing can succeed before the next one is sent.
func TestStalls_TheBoundCountsFromWhenARequestWaits(t *testing.T) {
	h := NewHistory()
	const second = time.Second
	kill := []fault.Event{{What: "a kill", At: h.Epoch.Add(second), Until: h.Epoch.Add(2 * second)}}
	planned := func(at, took time.Duration) Record {
		r := bought(at + took)
		r.Planned = at
		return r
	}
	givenUp := Record{Intent: Intent{GivesUp: true}, Outcome: Open, Attempts: []Attempt{{Outcome: Open, End: second / 2}}}
	ended := planned(0, 20*second)
	ended.Ends = true
	for name, c := range map[string]struct {
		records []Record
		stalls  int
	}{
		"the next one comes after the bound, and succeeds at once": {[]Record{bought(second / 2), planned(10*second, second)}, 0},
		"… and succeeds late":             {[]Record{bought(second / 2), planned(10*second, 3*second)}, 2},
		"one has waited all the time":     {[]Record{planned(0, 11*second), planned(10*second, second/2)}, 2},
		"what was given up does not wait": {[]Record{givenUp, planned(10*second, second)}, 0},
		"nor does the end of something":   {[]Record{ended, planned(10*second, second)}, 0},
	} {
		if got := Stalls(h, c.records, kill, 2*second); len(got) != c.stalls {
			t.Errorf("%s: %d stalls %v, want %d", name, len(got), got, c.stalls)
		}
	}
}

func TestStalls_OfAScheduleTheTimeOfFaultsThatFollowIsNotCounted(t *testing.T) {
	h := NewHistory()
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
		records := []Record{bought(at), last}
		if got := stalls(h, records, row, among(row, h.Epoch, 5*second)); len(got) != want {
			t.Errorf("a success at %v: %d stalls %v, want %d", at, len(got), got, want)
		}
		if got := Stalls(h, records, row, 5*second); len(got) <= want {
			t.Errorf("a success at %v: %d stalls of faults that stand alone", at, len(got))
		}
	}
}

func TestRefusedReads_AReadOfWhatTheReaderOwnsMustNotBeRefused(t *testing.T) {
	refused := func(key string, i Intent) Record {
		i.Key = key
		return Record{Intent: i, Outcome: Rejected, Attempts: []Attempt{{Outcome: Rejected, Problem: "not-found", Status: 404}}}
	}
	got := refusedReads([]Record{
		refused("own", Intent{Reads: true}), refused("other", Intent{Reads: true, Refusals: []string{"not-found"}}), refused("write", Intent{}),
		{Intent: Intent{Key: "read", Reads: true}, Outcome: OK},
	})
	if len(got) != 1 || got[0] != "own: rejected (404 not-found)" {
		t.Errorf("%q; want the read of what is the reader's", got)
	}
}

// Only a duplicate's answer says that another request had the effect.
func TestFirstDuplicates_AreKeysThatNoOtherAnswerDecided(t *testing.T) {
	done, again := Attempt{Outcome: OK, Status: 201}, Attempt{Outcome: OK, Status: 409, Duplicate: true}
	refused, lost := Attempt{Outcome: Rejected, Status: 422}, Attempt{Outcome: Unknown}
	for _, c := range []struct {
		name     string
		attempts []Attempt
		first    bool
	}{
		{"after a success", []Attempt{done, again, again}, false},
		{"before the answer of the first", []Attempt{again, done}, false},
		{"after a success that was not answered", []Attempt{lost, again}, false},
		{"without any success", []Attempt{again, again}, true},
		{"after a refusal", []Attempt{refused, again}, true},
	} {
		h := NewHistory()
		h.Intend(Intent{Key: "k"})
		for _, a := range c.attempts {
			a.Key = "k"
			h.Add(a, []byte("body"))
		}
		if found := firstDuplicates(h.Records()); (len(found) == 1) != c.first {
			t.Errorf("%s: %q", c.name, found)
		}
	}
}
