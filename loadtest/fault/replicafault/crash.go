// SPDX-License-Identifier: MIT

// Package replicafault injects faults into the replicas of a service: it kills them, at any
// moment or at each step of a request, and pauses them for longer than the TTL of their locks.
package replicafault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"shop/loadtest/fault"
)

// Crash kills the replicas in turn, and starts each again before the next kill. A kill
// drops what the replica holds: locks, transactions, answers.
type Crash struct {
	Victims fault.Victims
	Times   int
}

// Inject spreads the kills evenly.
func (c Crash) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	return fault.Series(ctx, over, c.Times, 0, func(ctx context.Context, round int) (fault.Event, error) {
		n := round % c.Victims.Len()
		event := fault.Event{
			What: fmt.Sprintf("replica %d killed", n+1), At: time.Now(), Hits: 1, Seen: map[string]int64{"crashes": 1},
			Replica: n + 1, Ends: true,
		}
		if err := c.Victims.Kill(ctx, n); err != nil {
			return fault.Event{}, fmt.Errorf("kill replica %d: %w", n+1, err)
		}
		err := c.Victims.Start(ctx, n)
		event.Until = time.Now()
		return event, err
	})
}

// CrashSteps kills a replica at each step of a flow in turn: it starts a replica with a
// failpoint that sends SIGKILL, and the first request at the step kills the replica. The
// replicas take turns. A step that no request reaches is no hit.
type CrashSteps struct {
	Replicas interface {
		fault.Victims
		Ended(n int) <-chan struct{} // closed when the process that was started last has ended
		Killed(n int) bool           // that process was ended by SIGKILL
	}
	Flow   string // "transfer"
	Steps  []string
	Action string        // of the failpoint: "kill", or "kill-batch" to wait for a batch of several requests
	Wait   time.Duration // limit for each step, until the replica has died
	Calm   time.Duration // undisturbed time after each step, at most half of its share: each kill may leave a lock until it expires
}

// Inject goes through all steps once, spread evenly over the time if it
// suffices. Each replica is started again without a failpoint.
func (c CrashSteps) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	return fault.Series(ctx, over, len(c.Steps), 0, func(ctx context.Context, round int) (fault.Event, error) {
		event, err := c.crash(ctx, round%c.Replicas.Len(), c.Steps[round])
		fault.Wait(ctx, min(c.Calm, over/time.Duration(2*len(c.Steps))))
		return event, err
	})
}

func (c CrashSteps) crash(ctx context.Context, n int, step string) (event fault.Event, err error) {
	event = fault.Event{What: fmt.Sprintf("replica %d killed at %s", n+1, step), At: time.Now(), Replica: n + 1, Ends: true}
	if err := c.Replicas.Kill(ctx, n); err != nil {
		return event, err
	}
	event.At = time.Now() // a request that this first kill interrupts is no evidence of a death at the step
	defer func() {
		late, cancel := fault.Undoing(ctx)
		defer cancel()
		err = errors.Join(err, c.Replicas.Start(late, n))
		event.Until = time.Now()
	}()
	died, err := c.diesAt(ctx, n, step)
	if died {
		event.Hits, event.Seen = 1, map[string]int64{"crashes": 1, "crash_" + step: 1}
		return event, err
	}
	event.What = fmt.Sprintf("replica %d did not reach %s", n+1, step)
	late, cancel := fault.Undoing(ctx)
	defer cancel()
	return event, errors.Join(err, c.Replicas.Kill(late, n))
}

// diesAt starts the replica with its failpoint, and reports whether it died there.
func (c CrashSteps) diesAt(ctx context.Context, n int, step string) (died bool, err error) {
	if err := c.Replicas.Start(ctx, n, "--failpoint", c.Flow+"/"+step+"="+c.Action); err != nil {
		return false, err
	}
	if !fault.Within(ctx, c.Wait, c.Replicas.Ended(n)) {
		return false, nil
	}
	if !c.Replicas.Killed(n) {
		return false, fmt.Errorf("replica %d exited by itself at %s", n+1, step)
	}
	return true, nil
}
