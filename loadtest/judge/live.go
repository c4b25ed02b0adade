// SPDX-License-Identifier: MIT

package judge

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"shop/loadtest/fault"
	"shop/loadtest/traffic"
)

// LiveMargin is added to the TTL of a lock for the bound of I-LIVE: the lock of a killed holder has to
// expire first, and then a waiter with a backoff has to retry, on a busy machine.
const LiveMargin = 3 * time.Second

// LiveBound is the time after a fault, and after its end, within which something must succeed.
func LiveBound(lockTTL time.Duration) time.Duration { return lockTTL + LiveMargin }

// Always is the same bound at each moment.
func Always(bound time.Duration) func(at time.Duration) time.Duration {
	return func(time.Duration) time.Duration { return bound }
}

// Stalls lists the faults after whose beginning or end no write succeeded within the bound of that moment. Requests that end
// what another one began (Intent.Ends) do not count, nor does an answer sent again. The bound starts when a write is pending:
// at a low rate there may be none for a while.
func Stalls(h *traffic.History, records []traffic.Record, events []fault.Event, bound func(at time.Duration) time.Duration) (found []string) {
	var successes []time.Duration
	for _, r := range records {
		if r.Outcome == traffic.OK && !r.Ends && !r.Reads {
			successes = append(successes, r.Deciding().End)
		}
	}
	slices.Sort(successes)
	for _, e := range events {
		for _, moment := range []struct {
			when string
			at   time.Time
		}{{"", e.At}, {", undone", e.Until}} {
			at := waits(records, moment.at.Sub(h.Epoch))
			most := bound(at)
			i, _ := slices.BinarySearch(successes, at)
			switch {
			case i == len(successes):
				found = append(found, fmt.Sprintf("%s%s at %v: no success after it", e.What, moment.when, at.Round(time.Millisecond)))
			case successes[i]-at > most:
				found = append(found, fmt.Sprintf("%s%s at %v: first success %v later; the bound is %v",
					e.What, moment.when, at.Round(time.Millisecond), (successes[i]-at).Round(time.Millisecond), most))
			}
		}
	}
	return found
}

// waits returns the first moment from at on at which a write is pending; at if there is none.
func waits(records []traffic.Record, at time.Duration) time.Duration {
	first := time.Duration(math.MaxInt64)
	for _, r := range records {
		until := r.DecidedAt(math.MaxInt64)
		if r.Abandoned() {
			until = r.Last().End
		}
		if until > at && !r.Ends && !r.Reads && len(r.Refusals) == 0 {
			first = min(first, max(at, r.Planned))
		}
	}
	if first == math.MaxInt64 {
		return at
	}
	return first
}

// Among returns the bound under a schedule of faults: the duration of each fault that begins within the
// bound is added. To a client, two stores that fail in succession are one outage.
func Among(events []fault.Event, epoch time.Time, bound time.Duration) func(at time.Duration) time.Duration {
	events = slices.SortedFunc(slices.Values(events), func(a, b fault.Event) int { return a.At.Compare(b.At) })
	return func(at time.Duration) time.Duration {
		longer := bound
		for _, e := range events {
			if from := e.At.Sub(epoch) - at; from > 0 && from < longer {
				longer += e.Until.Sub(e.At)
			}
		}
		return longer
	}
}

// Keys lists the keys of the records that match.
func Keys(records []traffic.Record, of func(traffic.Record) bool) (list []string) {
	for _, r := range records {
		if of(r) {
			list = append(list, r.Key)
		}
	}
	return list
}

// Undecided lists the keys that no retry decided in time.
func Undecided(records []traffic.Record) []string {
	return Keys(records, func(r traffic.Record) bool { return !r.Outcome.Final() && !r.Abandoned() })
}

// NotRefused lists the requests that are not allowed and were not refused with one of their problems.
func NotRefused(records []traffic.Record) (wrong []string) {
	for _, r := range records {
		if len(r.Refusals) > 0 && !slices.Contains(r.Refusals, r.Problem()) {
			wrong = append(wrong, fmt.Sprintf("%s: %s; want %s", r.Key, r.Ended(), strings.Join(r.Refusals, " or ")))
		}
	}
	return wrong
}

// RefusedWrites lists the writes that are allowed and were refused for a reason that is none of those known for the action.
func RefusedWrites(records []traffic.Record, known map[traffic.Action][]string) (wrong []string) {
	for _, r := range records {
		if !r.Reads && len(r.Refusals) == 0 && r.Outcome == traffic.Rejected && !slices.Contains(known[r.Action], r.Problem()) {
			wrong = append(wrong, r.Key+": "+r.Ended())
		}
	}
	return wrong
}

// RefusedReads lists the reads that are allowed and were refused.
func RefusedReads(records []traffic.Record) (wrong []string) {
	for _, r := range records {
		if r.Reads && len(r.Refusals) == 0 && r.Outcome == traffic.Rejected {
			wrong = append(wrong, r.Key+": "+r.Ended())
		}
	}
	return wrong
}

// Internal lists the keys that got an answer that only a bug, or a server that is gone, explains.
func Internal(records []traffic.Record) []string {
	internal := func(a traffic.Attempt) bool { return a.Problem == "internal" || a.Problem == "" && a.Status >= 500 }
	return Keys(records, func(r traffic.Record) bool { return slices.ContainsFunc(r.Attempts, internal) })
}

// Diverged lists the keys that got two different final answers, with these answers.
func Diverged(records []traffic.Record) (found []string) {
	for _, r := range records {
		if r.Diverged {
			found = append(found, r.Key+": "+r.Differs)
		}
	}
	return found
}

// FirstDuplicates lists the keys that were only ever answered as duplicates, although no request with them can have had
// an effect before.
func FirstDuplicates(records []traffic.Record) (found []string) {
	for _, r := range records {
		effect := func(a traffic.Attempt) bool {
			return a.Outcome == traffic.Unknown || a.Outcome == traffic.OK && !a.Duplicate
		}
		if decided := r.Deciding(); decided.Duplicate && !slices.ContainsFunc(r.Attempts, effect) {
			found = append(found, fmt.Sprintf("%s: %d %s: answered as a duplicate, but no request with this key can have had the effect before", r.Key, decided.Status, traffic.Brief(r.Body)))
		}
	}
	return found
}
