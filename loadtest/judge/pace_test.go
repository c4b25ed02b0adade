// SPDX-License-Identifier: MIT

package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"shop/loadtest/fault"
	"shop/loadtest/traffic"
)

const (
	paceRate = 100 // keys a second
	paceLoad = 16 * time.Second
	paceTTL  = 2 * time.Second
)

// decides returns when a key that is sent at a time is decided, and the answers before that.
type decides func(n int, sent time.Duration) (at time.Duration, before []traffic.Outcome)

// prompt decides each key at once.
func prompt(_ int, sent time.Duration) (time.Duration, []traffic.Outcome) {
	return sent + 50*time.Millisecond, nil
}

// stands is like prompt, but decides nothing in a span.
func stands(from, to time.Duration) decides {
	return func(_ int, sent time.Duration) (time.Duration, []traffic.Outcome) {
		if at := sent + 50*time.Millisecond; at < from || at >= to {
			return at, nil
		}
		return to, nil
	}
}

// sometimes gives one key in every so many another first answer.
func sometimes(outcome traffic.Outcome, every int) decides {
	return func(n int, sent time.Duration) (time.Duration, []traffic.Outcome) {
		if n%every == 0 {
			return sent + 100*time.Millisecond, []traffic.Outcome{outcome}
		}
		return prompt(n, sent)
	}
}

// catchingUp decides a backlog that begins at one time from another time on, at a rate.
func catchingUp(since, from time.Duration, rate int) decides {
	return func(n int, sent time.Duration) (time.Duration, []traffic.Outcome) {
		if sent < since {
			return prompt(n, sent)
		}
		place := float64(sent-since) / float64(time.Second) * paceRate
		return max(sent, from+time.Duration(place/float64(rate)*float64(time.Second))), nil
	}
}

// played returns a history of keys that are sent evenly and decided by when.
func played(when decides) (*traffic.History, []traffic.Record) {
	h := traffic.NewHistory()
	var records []traffic.Record
	for n := range int(paceLoad.Seconds() * paceRate) {
		sent := time.Duration(n) * time.Second / paceRate
		at, before := when(n, sent)
		r := traffic.Record{Intent: traffic.Intent{Key: fmt.Sprint(n)}, Planned: sent, Outcome: traffic.OK}
		for _, o := range before {
			r.Attempts = append(r.Attempts, traffic.Attempt{Start: sent, End: sent + 10*time.Millisecond, Status: 503, Outcome: o, Sends: 1})
		}
		r.Attempts = append(r.Attempts, traffic.Attempt{Start: sent + time.Duration(len(before))*20*time.Millisecond, End: at, Status: 201, Outcome: traffic.OK, Sends: 1})
		records = append(records, r)
	}
	return h, records
}

// broke returns the invariants of liveness that a history breaks.
func broke(h *traffic.History, records []traffic.Record, events []fault.Event) string {
	findings, _ := KeptUp(h, records, events, paceLoad, PaceOf(LiveBound(paceTTL), 0))
	violations := findings.Counts()
	maps.DeleteFunc(violations, func(_ string, n int64) bool { return n == 0 })
	return strings.Join(slices.Sorted(maps.Keys(violations)), " ")
}

// faults returns faults at equal intervals, from two seconds on.
func faults(h *traffic.History, times int, every, last time.Duration) (events []fault.Event) {
	for n := range times {
		at := h.Epoch.Add(2*time.Second + time.Duration(n)*every)
		events = append(events, fault.Event{What: "a kill", At: at, Until: at.Add(last)})
	}
	return events
}

func TestPace_WhatAServiceMustKeepUp(t *testing.T) {
	const second = time.Second
	// In ten seconds 29 keys are decided, one in 35, and the others afterwards.
	trickle := func(n int, sent time.Duration) (time.Duration, []traffic.Outcome) {
		if sent >= 3*second && sent < 13*second && n%35 != 0 {
			return 13*second + time.Duration(n)*time.Millisecond, nil
		}
		return prompt(n, sent)
	}
	inLulls := func(n int, sent time.Duration) (time.Duration, []traffic.Outcome) { // after each of three faults
		for _, fault := range []time.Duration{2 * second, 6 * second, 10 * second} {
			if sent >= fault && sent < fault+2700*time.Millisecond {
				return fault + 2700*time.Millisecond, nil
			}
		}
		return prompt(n, sent)
	}
	for _, c := range []struct {
		name   string
		when   decides
		faults int // one every four seconds, each of half a second
		want   string
	}{
		{"all at once", prompt, 0, ""},
		{"half of the first answers are busy", sometimes(traffic.Open, 2), 0, "I-BUSY"},
		{"one in six is", sometimes(traffic.Open, 6), 0, ""},
		{"one in five first answers is unknown", sometimes(traffic.Unknown, 5), 0, "I-ERROR"},
		{"one in twelve is", sometimes(traffic.Unknown, 12), 0, ""},
		{"nothing for three seconds", stands(4*second, 7*second), 0, "I-GOODPUT"},
		{"nothing for one second", stands(4*second, 5*second), 0, ""},
		{"it is too slow for the load, and keeps on", catchingUp(0, 0, paceRate*2/5), 0, ""},
		{"it is far too slow", catchingUp(0, 0, paceRate/10), 0, "I-GOODPUT"},
		{"it stands still for 2.7 s after each fault", inLulls, 3, ""},
		{"29 keys in ten seconds of faults", trickle, 3, "I-GOODPUT"},
		{"nothing for ten seconds of faults", stands(3*second, 13*second), 3, "I-GOODPUT"},
		{"the fault has an effect for four seconds", stands(2*second, 6500*time.Millisecond), 1, ""},
		{"it comes back slowly", catchingUp(2*second, 3*second, paceRate/3), 1, "I-RECOVER"},
		{"it comes back, and catches up", catchingUp(2*second, 6*second, 3*paceRate), 1, ""},
		{"half of the answers are busy, also outside of the outage", sometimes(traffic.Open, 2), 1, "I-BUSY"},
	} {
		h, records := played(c.when)
		if got := broke(h, records, faults(h, c.faults, 4*second, second/2)); got != c.want {
			t.Errorf("%s: broke %q, want %q", c.name, got, c.want)
		}
	}
}

func TestPace_AnswersInAnOutageAreNotCounted(t *testing.T) {
	h, records := played(func(n int, sent time.Duration) (time.Duration, []traffic.Outcome) {
		if sent >= 2*time.Second && sent < 7*time.Second {
			return sent + 100*time.Millisecond, []traffic.Outcome{traffic.Open}
		}
		return prompt(n, sent)
	})
	if got := broke(h, records, faults(h, 1, 0, 5*time.Second)); got != "" {
		t.Errorf("busy while the fault lasted: broke %q", got)
	}
	if got := broke(h, records, nil); got != "I-BUSY" {
		t.Errorf("busy without a fault: broke %q, want I-BUSY", got)
	}
	h, records = played(prompt)
	for i := range 2 * paceRate { // under way before the kill, and cut off by it
		records[i].Attempts = append([]traffic.Attempt{{Start: records[i].Planned, End: 2 * time.Second, Outcome: traffic.Unknown, Sends: 1}}, records[i].Attempts...)
	}
	if got := broke(h, records, faults(h, 1, 0, time.Second)); got != "" {
		t.Errorf("cut off by a fault: broke %q", got)
	}
	if got := broke(h, records, nil); got != "I-ERROR" {
		t.Errorf("the same without a fault: broke %q, want I-ERROR", got)
	}
}

func TestPace_AnAbandonedKeyNoLongerWaits(t *testing.T) {
	h, records := played(prompt)
	for i := range records {
		if i%2 == 0 && i > paceRate {
			records[i].GivesUp, records[i].Outcome = true, traffic.Open
			records[i].Attempts[0].Outcome = traffic.Open
		}
	}
	if got := broke(h, records, nil); got != "I-BUSY" {
		t.Errorf("half given up after busy: broke %q, want I-BUSY alone", got)
	}
	for i := range records {
		records[i].Outcome, records[i].GivesUp = traffic.Unknown, false
	}
	if got := broke(h, records, nil); !strings.Contains(got, "I-GOODPUT") {
		t.Errorf("nothing is decided: broke %q, want I-GOODPUT too", got)
	}
	for i := range records {
		records[i].Reads = true
	}
	if got := broke(h, records, nil); got != "" {
		t.Errorf("reads alone: broke %q", got)
	}
}

// What was not judged must not be reported as kept, nor as 100 %.
func TestPace_WithoutAWindowGoodputIsNotJudged(t *testing.T) {
	h, records := played(prompt)
	whole := []fault.Event{{What: "a fault", At: h.Epoch.Add(time.Second), Until: h.Epoch.Add(10 * time.Second)}}
	steady := []fault.Event{whole[0]}
	steady[0].Steady = true
	for _, c := range []struct {
		name   string
		events []fault.Event
		load   time.Duration
		judged bool
		figure bool
	}{
		{"the whole load", nil, paceLoad, true, true},
		{"a load of one window", nil, window, false, false},
		{"an outage that leaves no window, but a lull", whole, paceLoad, true, false},
		{"an outage that leaves neither", whole, paceLoad - 2*time.Second, false, false},
		{"a fault that is no outage", steady, paceLoad, true, true},
	} {
		findings, figures := KeptUp(h, records, c.events, c.load, PaceOf(LiveBound(paceTTL), 0))
		_, judged := findings["I-GOODPUT"]
		if _, figure := figures["goodput_percent"]; judged != c.judged || figure != c.figure {
			t.Errorf("%s: judged %t, figure %t", c.name, judged, figure)
		}
		_, recovered := findings["I-RECOVER"]
		if outage := len(c.events) > 0 && !c.events[0].Steady; recovered != outage {
			t.Errorf("%s: recovery judged %t, want %t", c.name, recovered, outage)
		}
	}
}
