// SPDX-License-Identifier: MIT

package judge

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"shop/loadtest/fault"
	"shop/loadtest/traffic"
)

// Evidence is the evidence in the history itself.
func Evidence(records []traffic.Record, replicas int, events []fault.Event, epoch time.Time) map[string]int64 {
	evidence := OnTheWire(records)
	evidence["overlaps"] = Overlaps(records, replicas)
	maps.Copy(evidence, meanwhile(records, events, epoch))
	evidence["decided_after_cut"] = decidedAfterCut(records, events)
	return evidence
}

// answers are the problems that have a counter of their own.
var answers = map[string]string{"outcome-unknown": "outcome_unknown", "stale": "stale_answers", "lost": "lost_answers"}

// OnTheWire counts attempts by what the clients saw.
func OnTheWire(records []traffic.Record) map[string]int64 {
	evidence := map[string]int64{"attempts": 0, "unknown_answers": 0, "silent_retries": 0}
	for _, r := range records {
		for _, a := range r.Attempts {
			evidence["attempts"]++
			if a.Outcome == traffic.Unknown {
				evidence["unknown_answers"]++
			}
			if name := answers[a.Problem]; name != "" {
				evidence[name]++
			}
			evidence["silent_retries"] += int64(max(0, a.Sends-1))
		}
	}
	return evidence
}

// meanwhile counts the outcomes of the attempts that were under way while a fault lasted, and the writes that
// succeeded after the last one.
func meanwhile(records []traffic.Record, events []fault.Event, epoch time.Time) map[string]int64 {
	counts, over := map[string]int64{}, time.Duration(math.MaxInt64)
	for i, e := range events {
		if until := e.Until.Sub(epoch); i == 0 || until > over {
			over = until
		}
	}
	for _, r := range records {
		for _, a := range r.Attempts {
			done := a.Outcome == traffic.OK && !r.Reads
			if done && a.Start > over {
				counts["done_after"]++
			}
			if a.Sends == 0 || !MetFault(a, events, epoch) {
				continue
			}
			counts["hit"]++
			if a.Status == 0 {
				counts["cut_off"]++
			}
			if !a.Outcome.Final() {
				counts["disturbed"]++
			}
			if a.Outcome == traffic.Open {
				counts["refused_meanwhile"]++
			}
			if done && Inside(a, events, epoch) {
				counts["done_meanwhile"]++
			}
		}
	}
	return counts
}

// Inside reports whether an attempt began and ended while a fault lasted.
func Inside(a traffic.Attempt, events []fault.Event, epoch time.Time) bool {
	return slices.ContainsFunc(events, func(e fault.Event) bool {
		return a.Start >= e.At.Sub(epoch) && a.End <= e.Until.Sub(epoch)
	})
}

// decidedAfterCut counts the decided keys whose COMMIT a fault had cut off or left in doubt.
func decidedAfterCut(records []traffic.Record, events []fault.Event) (n int64) {
	cut := map[string]bool{}
	for _, e := range events {
		for _, key := range e.Keys {
			cut[key] = true
		}
	}
	for _, r := range records {
		if cut[r.IdempotencyKey()] && r.Outcome.Final() {
			n++
		}
	}
	return n
}

// Struck reports whether a fault of a replica hit one of its requests: for a kill, a request that got no
// answer; for a pause, a request that waited until the end of the pause or got no answer.
func Struck(records []traffic.Record, e fault.Event, epoch time.Time) bool {
	at, until := e.At.Sub(epoch), e.Until.Sub(epoch)
	for _, r := range records {
		for _, a := range r.Attempts {
			if a.Replica != e.Replica-1 || a.Sends == 0 {
				continue
			}
			cut := a.Status == 0 && a.End >= at && a.Start <= until
			if cut && (e.Ends || a.Start <= at) || !e.Ends && a.Start <= at && a.End >= until {
				return true
			}
		}
	}
	return false
}

// MetFault reports whether an attempt was under way while a fault lasted.
func MetFault(a traffic.Attempt, events []fault.Event, epoch time.Time) bool {
	for _, e := range events {
		// The client sees the end of an attempt after the kill, whose time is noted before the kill.
		if at := e.At.Sub(epoch); a.Start <= e.Until.Sub(epoch) && a.End >= at {
			return true
		}
	}
	return false
}

// OverlapsLeast is the number of Overlaps without which a run shows nothing: two bursts of the smallest size, on
// two replicas, have as many.
const OverlapsLeast = 50

// Overlaps counts the pairs of requests with different keys that were under way for one object (a product, an
// account, a wallet) at the same time on different replicas. Only such a pair can show a lost update: requests
// with one key exclude each other by the key. Reads change nothing, and do not count. With a single address (of
// a load balancer), any two requests with different keys count.
func Overlaps(records []traffic.Record, replicas int) (pairs int64) {
	type span struct {
		*traffic.Record
		traffic.Attempt
	}
	byObject := map[string][]span{}
	for i := range records {
		r := &records[i]
		for _, a := range r.Attempts {
			if a.Sends == 0 || r.Reads {
				continue // it never reached a replica, or it changes nothing
			}
			for _, object := range r.Contends {
				byObject[object] = append(byObject[object], span{r, a})
			}
		}
	}
	for object, spans := range byObject {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.Start, b.Start) })
		var open []span
		for _, s := range spans {
			open = slices.DeleteFunc(open, func(o span) bool { return o.End <= s.Start })
			for _, o := range open {
				if o.Record != s.Record && (o.Replica != s.Replica || replicas == 1) && firstInCommon(o.Contends, s.Contends) == object {
					pairs++
				}
			}
			open = append(open, s)
		}
	}
	return pairs
}

// firstInCommon returns the first object of a that b has too: a pair that meets over two objects counts once.
func firstInCommon(a, b []string) string {
	for _, object := range a {
		if slices.Contains(b, object) {
			return object
		}
	}
	return ""
}
