package fault

import (
	"context"
	"fmt"
	"time"
)

// Crash kills one replica after the other and starts it again before the next:
// whatever it had in its hands (locks, transactions, answers) is dropped.
type Crash struct {
	Victims Victims
	Times   int
}

// Inject spreads the kills evenly.
func (c Crash) Inject(ctx context.Context, over time.Duration) ([]Event, error) {
	var events []Event
	began := time.Now()
	for i := range c.Times {
		due := over * time.Duration(i) / time.Duration(c.Times)
		if !Wait(ctx, due-time.Since(began)) {
			return events, ctx.Err()
		}
		n := i % c.Victims.Len()
		event := Event{What: fmt.Sprintf("replica %d killed", n+1), At: time.Now(), Hits: 1, Seen: map[string]int64{"crashes": 1}}
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
