package loadtest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"shop/loadtest/fault"
)

// liveMargin is added to the TTL of a lock for the bound of I-LIVE: a lock whose
// holder was killed has to run out first, and then somebody who waits, with a
// backoff, has to come round on a busy machine.
const liveMargin = 3 * time.Second

// LiveBound is how soon after a fault, and after its end, a purchase must succeed.
func LiveBound(lockTTL time.Duration) time.Duration { return lockTTL + liveMargin }

// Stalls lists the faults after whose beginning or end nobody could buy
// anything within the bound.
func Stalls(h *History, records []Record, events []fault.Event, bound time.Duration) []string {
	var successes []time.Duration
	for _, r := range records {
		for _, a := range r.Attempts {
			if a.Outcome == OK && r.Action == Buy {
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

// finale shows on every product that life goes on: an order is cancelled, and
// the unit that it gives back is bought. It returns the products where that
// failed.
func (v *volley) finale(ctx context.Context, stock []Stock) []string {
	cancelled := map[string]*Intent{}
	for _, r := range v.history.Records() {
		if r.Outcome == OK && r.Action == Buy && len(r.Lines) == 1 && r.Lines[0].Quantity == 1 {
			if sku := r.Lines[0].SKU; cancelled[sku] == nil {
				cancelled[sku] = &Intent{
					Key: "cancel-" + r.Key, Action: Cancel, Method: http.MethodPost,
					Path: "/v1/orders/" + r.Order.String() + "/cancel", Lines: r.Lines,
				}
			}
		}
	}
	var dead []string
	for n, s := range stock {
		again := &Intent{Key: "final-" + s.SKU, Action: Buy, Method: http.MethodPost, Path: "/v1/orders", Lines: []Stock{{s.SKU, 1}}}
		again.Body = buyBody(again.Lines)
		back := cancelled[s.SKU]
		switch {
		case back == nil:
			dead = append(dead, s.SKU+": no order of it succeeded")
		case !v.settle(ctx, n, back):
			dead = append(dead, s.SKU+": the last cancellation ended as "+v.history.last(back.Key))
		case !v.settle(ctx, n+1, again):
			dead = append(dead, s.SKU+": the last purchase ended as "+v.history.last(again.Key))
		}
	}
	return dead
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
		if !pause(ctx, chaseFirst) {
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
