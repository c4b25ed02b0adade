// SPDX-License-Identifier: MIT

package loadtest

import (
	"context"
	"fmt"
	"time"

	"shop/loadtest/fault"
)

// HangUp is a fault of the clients: they close connections before the answer, and retry later. A strategy that answers
// several requests in one transaction takes such requests out of its queue, and must not mix up the other answers.
const HangUp Fault = "hang-up"

// HangUpSpec is HangUp, of Combined. guard is Setup.Guard: requests must wait for a batch, however fast the machine is.
func HangUpSpec(guard int) FaultSpec {
	setup := Setup{Guard: guard, Inject: func(_ Servers, t *Trial) (fault.Fault, error) { return HangUps{t}, nil }}
	return FaultSpec{Fault: HangUp, Of: Combined, Setup: setup, Least: 5, Needs: []Need{
		{Evidence: "hung_up", Least: 50, Why: "fewer than 50 clients hung up"},
		{Evidence: "cut_off", Why: "no request that was under way got no answer"},
		together,
	}}
}

// HangUps makes the clients of a trial hang up, in rounds. Between the rounds all wait for their answers.
type HangUps struct{ Trial *Trial }

// The times of HangUps, and how many looks a round has. At each look half of the requests under way lose their client.
const (
	hangUpLooks = 10
	hangUpEvery = 20 * time.Millisecond
	hangUpCalm  = 1500 * time.Millisecond // a slow machine answers the requests that wait
)

// Inject lets clients hang up, in rounds.
func (h HangUps) Inject(ctx context.Context, over time.Duration) (events []fault.Event, err error) {
	for end := time.Now().Add(over); time.Now().Before(end) && ctx.Err() == nil; {
		e := fault.Event{At: time.Now()}
		for range hangUpLooks {
			e.Hits += int64(h.Trial.Recorder.HangUp())
			fault.Wait(ctx, hangUpEvery)
		}
		e.Until, e.Seen = time.Now(), map[string]int64{"hung_up": e.Hits}
		if e.Hits > 0 {
			e.What = fmt.Sprintf("%d clients hung up", e.Hits)
			events = append(events, e)
		}
		fault.Wait(ctx, min(hangUpCalm, time.Until(end)))
	}
	return events, ctx.Err()
}
