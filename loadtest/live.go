package loadtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"shop/loadtest/fault"
)

// liveMargin is added to the TTL of a lock for the bound of I-LIVE: a lock whose
// holder was killed has to run out first, and then somebody who waits, with a
// backoff, has to come round on a busy machine.
const liveMargin = 3 * time.Second

// LiveBound is how soon after a fault, and after its end, something must succeed.
func LiveBound(lockTTL time.Duration) time.Duration { return lockTTL + liveMargin }

// bound is that of a flow under a fault.
func (f Flow) bound(fault Fault, lockTTL time.Duration) time.Duration {
	return LiveBound(lockTTL) + f.Recovery[fault]
}

// Stalls lists the faults after whose beginning or end nobody could buy, move or
// hold anything within the bound.
func Stalls(h *History, records []Record, events []fault.Event, bound time.Duration) []string {
	var successes []time.Duration
	for _, r := range records {
		for _, a := range r.Attempts {
			if a.Outcome == OK && r.Action.begins() {
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
			at := moment.at.Sub(h.epoch)
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

// undecided lists the keys that outlived everybody's patience.
func undecided(records []Record) []string {
	var keys []string
	for _, r := range records {
		if !r.Outcome.Final() {
			keys = append(keys, r.Key)
		}
	}
	return keys
}

// diverged lists the keys that got two different final answers.
func diverged(records []Record) []string {
	var keys []string
	for _, r := range records {
		if r.Diverged {
			keys = append(keys, r.Key)
		}
	}
	return keys
}

// replays is how many decided keys are sent once more when all is over.
const replays = 40

// replay asks again for what was decided long ago, as likely as not of another
// replica, or of one that was killed since: the same answer must come, byte for
// byte (the history notices if not). "Try later" is no answer. It returns how
// many keys were answered, and those that were not while patience lasted.
func (v *volley) replay(ctx context.Context) (answered int64, silent []string) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	records := v.history.Records()
	for i := 0; i < len(records); i += max(1, len(records)/replays) {
		switch r := records[i]; {
		case !r.Outcome.Final():
		case v.askAgain(ctx, i, r.Intent):
			answered++
		default:
			silent = append(silent, r.Key+": decided, and asked again it ended as "+v.history.last(r.Key))
		}
	}
	return answered, silent
}

// askAgain sends a decided key until its answer is final again, or ctx ends.
func (v *volley) askAgain(ctx context.Context, replica int, i Intent) bool {
	header := v.headers.of(i)
	for {
		if send(ctx, v.client, v.bases[replica%len(v.bases)], i, header) == nil && v.history.answered(i.Key) {
			return true
		}
		if !fault.Wait(ctx, chaseFirst) {
			return false
		}
		replica++
	}
}

// settle sends one intent, and chases it until it is decided.
func (v *volley) settle(ctx context.Context, replica int, i *Intent) bool {
	record := v.history.Intend(*i)
	_ = send(ctx, v.client, v.bases[replica%len(v.bases)], *i, v.headers.of(*i))
	v.chaser.Wait()
	return v.history.outcome(record) == OK
}
