package loadtest

import (
	"context"
	"maps"
	"slices"
	"time"

	"shop/loadtest/fault"
)

// evidence is every number that is no verdict.
func (t *Trial) evidence(records []Record) map[string]int64 {
	evidence := maps.Clone(t.Replicas.Counters.Sum())
	maps.Copy(evidence, fromOutside(records, t.Replicas.Len(), t.events, t.History.Epoch))
	planned := int64(len(t.Plan.Schedule)+len(records)-len(t.Plan.Intents)) + t.replayed
	evidence["sent_again"], evidence["replayed"] = evidence["attempts"]-planned, t.replayed
	evidence["samples"] = int64(len(t.Samples))
	for _, e := range t.events {
		for name, n := range e.Seen {
			evidence[name] += n
		}
	}
	if t.Scenario.Fault == NoFault {
		evidence["rightful_refused"] = evidence["fence_refused"] // no holder was late: each had a right
	}
	if slices.Contains(t.Scenario.Flow.Outages, t.Scenario.Fault) {
		evidence["lock_acquired_after"] = evidence["lock_acquired"] - t.acquired
	}
	return evidence
}

// fromOutside is the evidence that the history itself holds.
func fromOutside(records []Record, replicas int, events []fault.Event, epoch time.Time) map[string]int64 {
	evidence := onTheWire(records)
	evidence["overlaps"] = Overlaps(records, replicas)
	evidence["cut_off"] = cutOff(records, events, epoch)
	return evidence
}

// onTheWire counts attempts.
func onTheWire(records []Record) map[string]int64 {
	evidence := map[string]int64{"attempts": 0, "unknown_answers": 0, "silent_retries": 0}
	for _, r := range records {
		for _, a := range r.Attempts {
			evidence["attempts"]++
			if a.Outcome == Unknown {
				evidence["unknown_answers"]++
			}
			if a.Problem == "outcome-unknown" {
				evidence["outcome_unknown"]++
			}
			evidence["silent_retries"] += int64(max(0, a.Sends-1))
		}
	}
	return evidence
}

// cutOff counts the attempts that were under way at the moment of a fault and
// got no answer.
func cutOff(records []Record, events []fault.Event, epoch time.Time) (n int64) {
	for _, r := range records {
		for _, a := range r.Attempts {
			if a.Status == 0 && a.Sends > 0 && metFault(a, events, epoch) {
				n++
			}
		}
	}
	return n
}

func metFault(a Attempt, events []fault.Event, epoch time.Time) bool {
	for _, e := range events {
		// The end is seen a moment after the kill, and the kill is noted a moment before.
		if at := e.At.Sub(epoch); a.Start <= e.Until.Sub(epoch) && a.End >= at {
			return true
		}
	}
	return false
}

// Peek sums what all replicas have counted up to now, those that were killed included.
func (rs *Replicas) Peek(ctx context.Context) map[string]int64 {
	sum := rs.Counters.Sum()
	for _, r := range rs.all {
		counts, err := rs.Counters.scrape(ctx, r.metrics)
		if err != nil {
			continue // it is down at the moment
		}
		for name, n := range counts {
			sum[name] += n
		}
	}
	return sum
}
