// Package replicafault does to the replicas of a service what operators and kernels do to
// them: it kills them, at any moment or at each step of a request, and stops them for
// longer than their locks last.
package replicafault

import (
	"context"
	"fmt"
	"time"

	"shop/loadtest/fault"
)

// Crash kills one replica after the other and starts it again before the next:
// whatever it had in its hands (locks, transactions, answers) is dropped.
type Crash struct {
	Victims fault.Victims
	Times   int
}

// Inject spreads the kills evenly.
func (c Crash) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	var events []fault.Event
	began := time.Now()
	for i := range c.Times {
		due := over * time.Duration(i) / time.Duration(c.Times)
		if !fault.Wait(ctx, due-time.Since(began)) {
			return events, ctx.Err()
		}
		n := i % c.Victims.Len()
		event := fault.Event{What: fmt.Sprintf("replica %d killed", n+1), At: time.Now(), Hits: 1, Seen: map[string]int64{"crashes": 1}}
		if err := c.Victims.Kill(ctx, n); err != nil {
			return events, fmt.Errorf("kill replica %d: %w", n+1, err)
		}
		if err := c.Victims.Start(ctx, n); err != nil {
			return append(events, event), fmt.Errorf("start replica %d again: %w", n+1, err)
		}
		event.Until = time.Now()
		events = append(events, event)
	}
	return events, nil
}
