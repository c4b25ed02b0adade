package loadtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"shop/loadtest/fault"
)

// LiveMargin is added to the TTL of a lock for the bound of I-LIVE: a lock whose
// holder was killed has to run out first, and then a waiter with a backoff has to ask
// again, on a busy machine.
const LiveMargin = 3 * time.Second

// LiveBound is how soon after a fault, and after its end, something must succeed.
func LiveBound(lockTTL time.Duration) time.Duration { return lockTTL + LiveMargin }

// Stalls lists the faults after whose beginning or end nothing new succeeded within
// the bound.
func Stalls(h *History, records []Record, events []fault.Event, bound time.Duration) []string {
	var successes []time.Duration
	for _, r := range records {
		for _, a := range r.Attempts {
			if a.Outcome == OK && !r.Ends && !r.Reads {
				successes = append(successes, a.End)
			}
		}
	}
	slices.Sort(successes)
	var stalls []string
	for _, e := range events {
		for _, moment := range []struct {
			when string
			at   time.Time
		}{{"", e.At}, {", undone", e.Until}} {
			at := moment.at.Sub(h.Epoch)
			i, _ := slices.BinarySearch(successes, at)
			switch {
			case i == len(successes):
				stalls = append(stalls, fmt.Sprintf("%s%s at %v: no success after it", e.What, moment.when, at.Round(time.Millisecond)))
			case successes[i]-at > bound:
				stalls = append(stalls, fmt.Sprintf("%s%s at %v: first success %v later, bound %v",
					e.What, moment.when, at.Round(time.Millisecond), (successes[i]-at).Round(time.Millisecond), bound))
			}
		}
	}
	return stalls
}

// keys lists those of some records.
func keys(records []Record, of func(Record) bool) (list []string) {
	for _, r := range records {
		if of(r) {
			list = append(list, r.Key)
		}
	}
	return list
}

// undecided lists the keys that no retry decided in time.
func undecided(records []Record) []string {
	return keys(records, func(r Record) bool { return !r.Outcome.Final() && !r.abandoned() })
}

// allowed lists the requests that are not allowed, and were not refused as they must be.
func allowed(records []Record) (wrong []string) {
	for _, r := range records {
		if len(r.Refusals) > 0 && !slices.Contains(r.Refusals, r.Problem()) {
			wrong = append(wrong, fmt.Sprintf("%s: %s; want %s", r.Key, r.Ended(), strings.Join(r.Refusals, " or ")))
		}
	}
	return wrong
}

// hidden lists the reads of what is there, and is the reader's, that were refused.
func hidden(records []Record) (wrong []string) {
	for _, r := range records {
		if r.Reads && len(r.Refusals) == 0 && r.Outcome == Rejected {
			wrong = append(wrong, r.Key+": "+r.Ended())
		}
	}
	return wrong
}

// diverged lists the keys that got two different final answers.
func diverged(records []Record) []string {
	return keys(records, func(r Record) bool { return r.Diverged })
}

// replays is how many decided keys are sent once more when all is over.
const replays = 40

// replay sends some decided keys again, to other replicas or ones that were killed
// since: the same answer must come, byte for byte (the history notices if not). "Try
// later" is no answer. It returns how many keys were answered, and those that were not
// in time.
func (r *Run) replay(ctx context.Context) (answered int64, silent []string) {
	ctx, stop := context.WithTimeout(ctx, grace)
	defer stop()
	records := slices.DeleteFunc(r.History.Records(), func(r Record) bool { return r.Reads })
	for i := 0; i < len(records); i += max(1, len(records)/replays) {
		switch record := records[i]; {
		case !record.Outcome.Final():
		case r.askAgain(ctx, i, record.Intent):
			answered++
		default:
			silent = append(silent, record.Key+": decided, and asked again it ended as "+r.History.Record(record.Key).Ended())
		}
	}
	return answered, silent
}

// askAgain sends a decided key until its answer is final again, or ctx ends.
func (r *Run) askAgain(ctx context.Context, replica int, i Intent) bool {
	for ; r.send(ctx, replica, i) != nil || !r.History.Record(i.Key).Last().Outcome.Final(); replica++ {
		if !fault.Wait(ctx, retryFirst) {
			return false
		}
	}
	return true
}
