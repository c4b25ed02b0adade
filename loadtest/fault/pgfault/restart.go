package pgfault

import (
	"context"
	"fmt"
	"time"

	"shop/loadtest/fault"
)

// Restart kills PostgreSQL and starts it again at once, a few times, with life
// between: every connection breaks, every open transaction is rolled back, and
// the answer to a COMMIT on its way is lost.
type Restart struct {
	Postgres fault.Server
	Times    int
}

// Inject spreads the restarts evenly. It always starts the server again.
func (r Restart) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	var events []fault.Event
	began := time.Now()
	for i := range r.Times {
		due := over * time.Duration(i) / time.Duration(r.Times)
		if !fault.Wait(ctx, due-time.Since(began)) {
			break
		}
		event := fault.Event{What: "postgres killed", At: time.Now(), Hits: 1, Seen: map[string]int64{"pg_restarts": 1}}
		whole, cancel := fault.Undoing(ctx)
		killErr := r.Postgres.Kill(whole)
		err := r.Postgres.Start(whole)
		cancel()
		switch {
		case killErr != nil:
			return events, fmt.Errorf("kill postgres: %w", killErr)
		case err != nil:
			return append(events, event), fmt.Errorf("start postgres again: %w", err)
		}
		event.Until = time.Now()
		events = append(events, event)
	}
	return events, ctx.Err()
}
