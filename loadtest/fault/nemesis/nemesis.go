// SPDX-License-Identifier: MIT

package nemesis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"shop/loadtest/fault"
)

// Nemesis runs a schedule drawn from a plan.
type Nemesis struct{ Plan }

// Inject runs the schedule, and returns when everything is undone. An event counts as a
// fault only if it hit something.
func (n Nemesis) Inject(ctx context.Context, over time.Duration) (events []fault.Event, err error) {
	n.Over = over
	schedule := n.Draw()
	if len(schedule) == 0 {
		return nil, fmt.Errorf("no fault fits into %v: use a longer load", over)
	}
	began := time.Now()
	for _, round := range schedule {
		if over-time.Since(began) < round.length() || !fault.Wait(ctx, round.At-time.Since(began)) {
			continue
		}
		done, err := round.run(ctx)
		events = append(events, done...)
		if err != nil {
			return events, err
		}
		if !fault.Wait(ctx, gapLeast) {
			break
		}
	}
	return events, ctx.Err()
}

// run injects the faults of the round concurrently. If one fails, the other is cancelled.
func (r Round) run(ctx context.Context) (events []fault.Event, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done, errs := make([][]fault.Event, len(r.Steps)), make([]error, len(r.Steps))
	var work sync.WaitGroup
	for n, s := range r.Steps {
		work.Go(func() {
			if !fault.Wait(ctx, s.After) {
				return
			}
			var failed error
			done[n], failed = s.Part.Fault.Inject(ctx, s.For)
			if failed != nil && (ctx.Err() == nil || !errors.Is(failed, ctx.Err())) {
				errs[n] = fmt.Errorf("%s: %w", s.Part.Name, failed)
				cancel()
			}
		})
	}
	work.Wait()
	hitting := 0
	for _, of := range done {
		for n := range of {
			note(&of[n], "faults")
		}
		if n := slices.IndexFunc(of, hit); n >= 0 {
			if hitting++; hitting == len(r.Steps) && hitting > 1 {
				note(&of[n], "faults_at_once")
			}
		}
		events = append(events, of...)
	}
	return events, errors.Join(errs...)
}

func hit(e fault.Event) bool { return e.Hits > 0 }

// note adds evidence to an event that hit something.
func note(e *fault.Event, evidence string) {
	if !hit(*e) {
		return
	}
	if e.Seen == nil {
		e.Seen = map[string]int64{}
	}
	e.Seen[evidence] = 1
}
