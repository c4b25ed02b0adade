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

// Of a long load there are samplesMost samples at most. From then on looking takes a small
// part of the time, one part to lookShare parts of waiting: by then a look may be slow.
const (
	samplesMost = 1200
	lookShare   = 4
)

// Watch samples some levels until ctx ends. An outage of the server is no error, but a gap
// between two samples; the first one, before anything is broken, has to work.
func Watch(ctx context.Context, clock func() time.Duration, look func() ([]Level, error)) (samples []Sample, err error) {
	every, wait := SampleEvery, time.Duration(0)
	for fault.Wait(ctx, wait) {
		at, began := clock(), time.Now()
		levels, err := look()
		switch {
		case ctx.Err() != nil:
			return samples, nil
		case err == nil:
			samples = append(samples, Sample{at, levels})
		case len(samples) == 0:
			return nil, err
		}
		if len(samples) == samplesMost {
			samples, every = thin(samples), 2*every
		}
		if wait = every; every > SampleEvery {
			wait = max(every, lookShare*time.Since(began))
		}
	}
	return samples, nil
}

// thin leaves every other sample out, but not the first one that is apart.
func thin(samples []Sample) (kept []Sample) {
	found := false
	for n, s := range samples {
		first := !found && len(Apart(samples[n:n+1])) > 0
		found = found || first
		if first || n%2 == 0 {
			kept = append(kept, s)
		}
	}
	return kept
}

// WatchSQL samples the levels of a database. The statement returns a row for each: a name,
// what is said and what is true.
func WatchSQL(ctx context.Context, databaseURL, sql string, clock func() time.Duration) ([]Sample, error) {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return Watch(ctx, clock, func() ([]Level, error) {
		if conn.IsClosed() {
			again, err := pgx.Connect(ctx, databaseURL)
			if err != nil {
				return nil, err
			}
			conn = again
		}
		rows, _ := conn.Query(ctx, sql) // CollectRows tells its error
		return pgx.CollectRows(rows, pgx.RowToStructByPos[Level])
	})
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
