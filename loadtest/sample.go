package loadtest

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest/fault"
)

// Sample is the state of the database at one moment while the load runs.
type Sample struct {
	At     time.Duration
	Levels []Level // in order of name
}

// Level is how much there is of something.
type Level struct {
	Name string
	Says int64 // by the row that keeps it: the shelf, the balances
	True int64 // by everything that changed it; below 0, units were sold that never were there
}

// Total adds all levels up.
func (s Sample) Total() (sum Level) {
	for _, l := range s.Levels {
		sum.Says += l.Says
		sum.True += l.True
	}
	return sum
}

// SampleEvery is often enough for a curve, and rare enough not to be load.
const SampleEvery = 100 * time.Millisecond

// WatchSQL samples the levels of a database until ctx ends. The statement returns a row
// for each: a name, what is said and what is true. An outage of the server is no error,
// but a gap between two samples.
func WatchSQL(ctx context.Context, databaseURL, sql string, clock func() time.Duration) ([]Sample, error) {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var samples []Sample
	for {
		s := Sample{At: clock()}
		rows, _ := conn.Query(ctx, sql) // CollectRows tells its error
		s.Levels, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Level])
		switch {
		case ctx.Err() != nil:
			return samples, nil
		case err == nil:
			samples = append(samples, s)
		case !conn.IsClosed():
			return samples, err
		default:
			if again, err := pgx.Connect(ctx, databaseURL); err == nil {
				conn = again
			}
		}
		if !fault.Wait(ctx, SampleEvery) {
			return samples, nil
		}
	}
}

// Apart lists where what is said and what is true did not agree.
func Apart(samples []Sample) []string {
	var found []string
	for _, s := range samples {
		for _, l := range s.Levels {
			if l.Says != l.True {
				found = append(found, fmt.Sprintf("%s at %v: says %d, should be %d", l.Name, s.At.Round(time.Millisecond), l.Says, l.True))
			}
		}
	}
	return found
}

// Level is what is said of one level.
func (s Sample) Level(name string) (n int64, seen bool) {
	for _, l := range s.Levels {
		if l.Name == name {
			return l.Says, true
		}
	}
	return 0, false
}

// DriftLevel is how far balances are from their entries.
const DriftLevel = "drift"

// Drift is the curve of that level.
var Drift = Curve{Class: "line true", Of: func(s Sample) int64 {
	n, _ := s.Level(DriftLevel)
	return n
}}
