// SPDX-License-Identifier: MIT

package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"shop/loadtest/fault"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// Pace bounds how far a service may fall behind the load. The bounds complement Stalls, which requires one success soon after
// each fault. That alone would accept a service that decides three keys a second.
type Pace struct {
	Lull    time.Duration // how long after its end a fault may still keep nearly all keys waiting
	Recover time.Duration // from the end of a fault until the rate is 90 % of the rate before the first fault
	After   time.Duration // how long after an outage first answers do not count in the shares
}

// PaceOf returns the Pace under the bound of I-LIVE. after is Pace.After; 0: a second, in which clients may still receive answers
// that were sent during the outage.
func PaceOf(bound, after time.Duration) Pace {
	return Pace{Lull: bound, Recover: bound + RecoverMargin, After: cmp.Or(after, time.Second)}
}

// These bounds are at least twice as lenient as what safe strategies showed in 61 saved runs on two cores. In
// each two seconds outside of an outage they decided all keys that waited at the beginning of the two seconds.
// They recovered within 2.7 s after a fault. Of their first answers, at most 3 % were busy and 5 % unknown. (If a
// service answers busy to every second request, 50 % are busy.)
const (
	goodputLeast = 0.2 // of the waiting keys, which must be decided in each window outside of an outage
	window       = 2 * time.Second
	busyMost     = 0.2 // of the first answers, with the outcome open
	errorsMost   = 0.1 // of the first answers, with the outcome unknown, missing answers included
)

// RecoverMargin is added to the bound of I-LIVE: catching up with all waiting keys takes longer than one
// success.
const RecoverMargin = 3 * time.Second

// lullShare is the share of the demand that must be met for a span not to be a lull. recovered is the
// share of the rate before the first fault that counts as recovered.
const (
	lullShare = 0.25
	recovered = 0.9
)

// A window in which fewer keys wait than fewestWaiting is passed, and fewer first answers outside of the outages than
// fewestAnswers are not judged: a single key would decide the result.
const (
	fewestWaiting = 10
	fewestAnswers = 50
	paceStep      = 100 * time.Millisecond
)

// outage is the span of a fault, on the history's clock.
type outage struct {
	what     string
	from, to time.Duration
}

// tempo holds when the writes of a load were planned and when they were decided.
type tempo struct {
	sent, decided []time.Duration   // each in order; an abandoned key counts as decided
	first         []traffic.Attempt // the first attempt of each key, if it was sent
	outages       []outage          // in order of their beginning
	until         time.Duration     // the end of the load
}

// newTempo reads a history. Reads are not counted: they wait for no lock. A Steady fault is no outage.
func newTempo(h *traffic.History, records []traffic.Record, events []fault.Event, until time.Duration) *tempo {
	t := &tempo{until: until}
	for _, e := range events {
		if !e.Steady {
			t.outages = append(t.outages, outage{e.What, e.At.Sub(h.Epoch), e.Until.Sub(h.Epoch)})
		}
	}
	slices.SortStableFunc(t.outages, func(a, b outage) int { return cmp.Compare(a.from, b.from) })
	for _, r := range records {
		if !r.Reads && len(r.Attempts) > 0 {
			t.add(r)
		}
	}
	slices.Sort(t.sent)
	slices.Sort(t.decided)
	return t
}

func (t *tempo) add(r traffic.Record) {
	first := slices.MinFunc(r.Attempts, func(a, b traffic.Attempt) int { return cmp.Compare(a.Start, b.Start) })
	t.sent = append(t.sent, r.Planned)
	switch {
	case r.Outcome.Final():
		t.decided = append(t.decided, r.Deciding().End)
	case r.Abandoned():
		t.decided = append(t.decided, r.Last().End)
	}
	if first.Sends > 0 {
		t.first = append(t.first, first)
	}
}

// answers counts the first answers that lie outside of every outage and the time after that follows it: open
// ones, unknown ones, all.
func (t *tempo) answers(after time.Duration) (busy, unknown, all int) {
	for _, a := range t.first {
		if t.within(a.Start, a.End, after) {
			continue
		}
		all++
		switch a.Outcome {
		case traffic.Open:
			busy++
		case traffic.Unknown:
			unknown++
		}
	}
	return busy, unknown, all
}

// within reports whether a span overlaps an outage, which is taken as lasting longer.
func (t *tempo) within(from, to, longer time.Duration) bool {
	return slices.ContainsFunc(t.outages, func(o outage) bool { return from <= o.to+longer && to >= o.from })
}

// before counts the moments before a time.
func before(moments []time.Duration, at time.Duration) int {
	return sort.Search(len(moments), func(i int) bool { return moments[i] >= at })
}

// waiting counts the keys that were planned before a time and not yet decided. got counts the keys that
// were decided in a span.
func (t *tempo) waiting(at time.Duration) int { return before(t.sent, at) - before(t.decided, at) }

func (t *tempo) got(from, to time.Duration) int {
	return before(t.decided, to) - before(t.decided, from)
}

// demand is how many keys must be decided in a span: those that wait at its beginning, but no more than
// are planned in a span of this length. A service may have a backlog as long as it keeps up.
func (t *tempo) demand(at, length time.Duration) float64 {
	usual := float64(len(t.sent)) * length.Seconds() / max(t.until, time.Second).Seconds()
	return min(float64(t.waiting(at)), usual)
}

// slow lists the windows, none of which overlap, that met less than a given share of the demand, and returns
// the least share of all windows. judged is false if there was no window: all were skipped, or the load was too short.
func (t *tempo) slow(length time.Duration, part float64, skip func(from, to time.Duration) bool) (found []string, least float64, judged bool) {
	least = 1
	for from := paceStep; from+length <= t.until; from += paceStep { // at 0 nothing waits
		to := from + length
		if skip(from, to) {
			continue
		}
		judged = true
		if t.waiting(from) < fewestWaiting {
			continue
		}
		met := float64(t.got(from, to)) / t.demand(from, length)
		least = min(least, met)
		if met < part {
			found = append(found, fmt.Sprintf("%v to %v: %d keys decided while %d waited; at least %.0f %% of %.0f must be",
				from, to, t.got(from, to), t.waiting(from), 100*part, t.demand(from, length)))
			from = to
		}
	}
	return found, least, judged
}

// goodput lists the windows outside of the outages with too little goodput, and the longer spans anywhere
// in which nearly nothing was decided. least is the smallest share outside of the outages; -1: there was no window.
func (t *tempo) goodput(p Pace) (found []string, least float64, judged bool) {
	lull := p.Lull
	for _, o := range t.outages {
		lull = max(lull, o.to-o.from+p.Lull)
	}
	found, least, judged = t.slow(window, goodputLeast, func(from, to time.Duration) bool { return t.within(from, to, p.Lull) })
	long, _, also := t.slow(lull, lullShare, func(from, to time.Duration) bool { return false })
	if !judged {
		least = -1
	}
	return append(found, long...), least, judged || also
}

// recovery lists the faults after whose end the rate did not recover in time. It returns the longest time
// that a recovery took too, and whether any fault was judged. A fault is not judged if the next one begins before its limit.
func (t *tempo) recovery(p Pace) (slow []string, longest time.Duration, some bool) {
	if len(t.outages) == 0 || t.outages[0].from < paceStep {
		return nil, 0, false
	}
	calm := float64(before(t.decided, t.outages[0].from)) / t.outages[0].from.Seconds()
	for i, o := range t.outages {
		limit, judged := o.to+p.Recover, true
		if i+1 < len(t.outages) && t.outages[i+1].from < limit {
			limit, judged = t.outages[i+1].from, false
		}
		at := o.to
		for at < limit && !t.back(at, calm) {
			at += paceStep
		}
		if at < limit || judged {
			longest, some = max(longest, at-o.to), true
		}
		if at >= limit && judged {
			slow = append(slow, fmt.Sprintf("%s, over at %v: %d keys a second %v later, %.0f before the first fault; %d keys wait",
				o.what, o.to.Round(time.Millisecond), t.got(at, at+time.Second), p.Recover, calm, t.waiting(at)))
		}
	}
	return slow, longest, some
}

// back reports whether the service has recovered in the second after a time: it decided the share recovered of
// the keys that it decided in a second before the faults, or of those that waited or were planned in this second.
func (t *tempo) back(at time.Duration, calm float64) bool {
	there := t.waiting(at) + before(t.sent, at+time.Second) - before(t.sent, at)
	return float64(t.got(at, at+time.Second)) >= math.Floor(recovered*min(calm, float64(there)))
}

// share returns a finding if too many of the first answers are of a kind.
func share(n, of int, most float64, what string) []string {
	if float64(n) <= most*float64(of) {
		return nil
	}
	return []string{fmt.Sprintf("%d of %d first answers %s; at most %.0f %% may", n, of, what, 100*most)}
}

func percent(n, of int) int64 { return int64(math.Round(100 * float64(n) / float64(max(1, of)))) }

// KeptUp judges how a service kept up with a load that ended at until. It returns the findings by invariant, and the figures
// as evidence.
func KeptUp(h *traffic.History, records []traffic.Record, events []fault.Event, until time.Duration, p Pace) (invariant.Findings, map[string]int64) {
	return newTempo(h, records, events, until).judge(p)
}

func (t *tempo) judge(p Pace) (findings invariant.Findings, evidence map[string]int64) {
	lulls, least, judged := t.goodput(p)
	slow, longest, after := t.recovery(p)
	busy, unknown, all := t.answers(p.After)
	findings = invariant.Findings{}
	evidence = map[string]int64{}
	if judged {
		findings.Add("I-GOODPUT", lulls...)
	}
	if least >= 0 {
		evidence["goodput_percent"] = int64(100 * min(1, least))
	}
	if after {
		findings.Add("I-RECOVER", slow...)
		evidence["recovery_ms"] = longest.Milliseconds()
	}
	if all >= fewestAnswers {
		findings.Add("I-BUSY", share(busy, all, busyMost, "say that nothing was done")...)
		findings.Add("I-ERROR", share(unknown, all, errorsMost, "leave the outcome unknown or are missing")...)
		evidence["busy_percent"], evidence["error_percent"] = percent(busy, all), percent(unknown, all)
	}
	return findings, evidence
}
