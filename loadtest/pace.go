package loadtest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"shop/loadtest/fault"
	"shop/locking/invariant"
)

// Pace is what a service must keep up under load: the bounds of liveness. A field that is
// 0 has the value of DefaultPace. One success soon after each fault (Stalls) is less than
// clients need: ten seconds with 29 of them are an outage.
type Pace struct {
	Goodput float64       // least part of the keys that wait that must be decided in each Window outside of an outage
	Window  time.Duration // …
	Lull    time.Duration // a fault may keep nearly all keys waiting for as long as it lasts, and for so long more; 0: the bound of I-LIVE
	Recover time.Duration // from the end of a fault until the rate is again 90 % of that before the first one; 0: the bound of I-LIVE, and RecoverMargin
	Busy    float64       // greatest share of keys whose first answer is that nothing was done
	Errors  float64       // … that it is unknown what was done, or that gets none
}

// DefaultPace is at least two times off what safe strategies needed on two cores, in 61 saved
// runs and under other load: in each two seconds outside of an outage they decided all keys
// that waited at its begin, they were back 2.7 s after a fault, and of their first answers at
// most 3 % were busy and 5 % unknown. (An answer to every second request is busy: 50 %.)
var DefaultPace = Pace{Goodput: 0.2, Window: 2 * time.Second, Busy: 0.2, Errors: 0.1}

// RecoverMargin is added to the bound of I-LIVE: to decide one key is quicker than to
// catch up with those that waited.
const RecoverMargin = 3 * time.Second

// lullShare is the part of the keys that wait that ends a lull, and recovered the part of
// the rate before a fault that ends its aftermath.
const (
	lullShare = 0.25
	recovered = 0.9
)

// A window with fewer keys that wait, and a scenario with fewer first answers outside of its
// outages, is not judged: one key would decide on it.
const (
	fewestWaiting = 10
	fewestAnswers = 50
	paceStep      = 100 * time.Millisecond
	afterOutage   = time.Second // clients still have answers that were sent in it
)

// or is p, and of what is 0 in it, other.
func (p Pace) or(other Pace) Pace {
	return Pace{
		Goodput: cmp.Or(p.Goodput, other.Goodput), Window: cmp.Or(p.Window, other.Window), Lull: cmp.Or(p.Lull, other.Lull),
		Recover: cmp.Or(p.Recover, other.Recover), Busy: cmp.Or(p.Busy, other.Busy), Errors: cmp.Or(p.Errors, other.Errors),
	}
}

// pace is that of a flow under a fault.
func (f *Flow) pace(of Fault, lockTTL time.Duration) Pace {
	bound := f.Bound(of, lockTTL)
	return f.spec(of).Pace.or(f.Pace).or(DefaultPace).or(Pace{Lull: bound, Recover: bound + RecoverMargin})
}

// outage is a fault under way, in the time of the history.
type outage struct {
	what     string
	from, to time.Duration
}

// tempo is when keys were to be sent and when they were decided.
type tempo struct {
	sent, decided []time.Duration // each in order; of a key that was given up: when that was
	busy, errors  int             // first answers outside of the outages
	answers       int             // all of them
	outages       []outage        // in order of their beginning
	until         time.Duration   // the end of the load
}

// newTempo reads a history. Reads are not counted: they wait for no lock.
func newTempo(h *History, records []Record, events []fault.Event, until time.Duration) *tempo {
	t := &tempo{until: until}
	for _, e := range events {
		t.outages = append(t.outages, outage{e.What, e.At.Sub(h.Epoch), e.Until.Sub(h.Epoch)})
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

func (t *tempo) add(r Record) {
	first := slices.MinFunc(r.Attempts, func(a, b Attempt) int { return cmp.Compare(a.Start, b.Start) })
	t.sent = append(t.sent, r.Planned)
	switch {
	case r.Outcome.Final():
		t.decided = append(t.decided, r.deciding().End)
	case r.abandoned():
		t.decided = append(t.decided, r.Last().End)
	}
	if t.within(first.Start, first.End, afterOutage) || first.Sends == 0 {
		return
	}
	t.answers++
	switch first.Outcome {
	case Open:
		t.busy++
	case Unknown:
		t.errors++
	}
}

// within tells whether a span touches an outage, which has its effect for a while longer.
func (t *tempo) within(from, to, longer time.Duration) bool {
	return slices.ContainsFunc(t.outages, func(o outage) bool { return from <= o.to+longer && to >= o.from })
}

// before counts the moments before one.
func before(moments []time.Duration, at time.Duration) int {
	return sort.Search(len(moments), func(i int) bool { return moments[i] >= at })
}

// waiting is how many keys were sent and not decided at a moment, got how many were
// decided in a span.
func (t *tempo) waiting(at time.Duration) int { return before(t.sent, at) - before(t.decided, at) }

func (t *tempo) got(from, to time.Duration) int {
	return before(t.decided, to) - before(t.decided, from)
}

// demand is what can be decided in a span of this length: the keys that wait at its begin,
// but no more than are sent in such a span. A service may be late for as long as it keeps up.
func (t *tempo) demand(at, length time.Duration) float64 {
	usual := float64(len(t.sent)) * length.Seconds() / max(t.until, time.Second).Seconds()
	return min(float64(t.waiting(at)), usual)
}

// slow lists the windows, none of which overlap, in which less than a part of the demand was met,
// and the least part.
func (t *tempo) slow(length time.Duration, part float64, skip func(from, to time.Duration) bool) (found []string, least float64) {
	least = 1
	for from := time.Duration(0); from+length <= t.until; from += paceStep {
		to := from + length
		if t.waiting(from) < fewestWaiting || skip(from, to) {
			continue
		}
		met := float64(t.got(from, to)) / t.demand(from, length)
		least = min(least, met)
		if met < part {
			found = append(found, fmt.Sprintf("%v to %v: %d keys decided, %d waited; at least %.0f %% of %.0f must be",
				from, to, t.got(from, to), t.waiting(from), 100*part, t.demand(from, length)))
			from = to
		}
	}
	return found, least
}

// goodput lists the lulls: windows outside of the outages, and longer spans anywhere, in which
// nearly nothing was decided.
func (t *tempo) goodput(p Pace) (found []string, least float64) {
	lull := p.Lull
	for _, o := range t.outages {
		lull = max(lull, o.to-o.from+p.Lull)
	}
	found, least = t.slow(p.Window, p.Goodput, func(from, to time.Duration) bool { return t.within(from, to, p.Lull) })
	long, _ := t.slow(lull, lullShare, func(from, to time.Duration) bool { return false })
	return append(found, long...), least
}

// recovery lists the faults after whose end the rate did not come back in time, and the
// longest time that it took. It is not judged where the next fault comes sooner.
func (t *tempo) recovery(p Pace) (slow []string, longest time.Duration) {
	if len(t.outages) == 0 || t.outages[0].from < paceStep {
		return nil, 0
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
			longest = max(longest, at-o.to)
		}
		if at >= limit && judged {
			slow = append(slow, fmt.Sprintf("%s, over at %v: %d keys a second %v later, %.0f before; %d wait",
				o.what, o.to.Round(time.Millisecond), t.got(at, at+time.Second), p.Recover, calm, t.waiting(at)))
		}
	}
	return slow, longest
}

// back tells whether in the second from a moment on nearly as much was decided as before the
// faults, or all that there was.
func (t *tempo) back(at time.Duration, calm float64) bool {
	there := t.waiting(at) + before(t.sent, at+time.Second) - before(t.sent, at)
	return float64(t.got(at, at+time.Second)) >= math.Floor(recovered*min(calm, float64(there)))
}

// share says that there were too many first answers of a kind.
func (t *tempo) share(n int, most float64, what string) []string {
	if t.answers < fewestAnswers || float64(n) <= most*float64(t.answers) {
		return nil
	}
	return []string{fmt.Sprintf("%d of %d first answers are %s; at most %.0f %% may be", n, t.answers, what, 100*most)}
}

func percent(n, of int) int64 { return int64(math.Round(100 * float64(n) / float64(max(1, of)))) }

// judge says what a service did not keep up, by invariant, and the figures.
func (t *tempo) judge(p Pace) (findings invariant.Findings, evidence map[string]int64) {
	lulls, least := t.goodput(p)
	slow, longest := t.recovery(p)
	findings = invariant.Findings{}
	findings.Add("I-GOODPUT", lulls...)
	findings.Add("I-RECOVER", slow...)
	findings.Add("I-BUSY", t.share(t.busy, p.Busy, "that nothing was done")...)
	findings.Add("I-ERROR", t.share(t.errors, p.Errors, "unknown, or did not come")...)
	evidence = map[string]int64{
		"goodput_percent": int64(100 * min(1, least)), "busy_percent": percent(t.busy, t.answers), "error_percent": percent(t.errors, t.answers),
	}
	if len(t.outages) > 0 {
		evidence["recovery_ms"] = longest.Milliseconds()
	}
	return findings, evidence
}
