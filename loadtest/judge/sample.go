// SPDX-License-Identifier: MIT

package judge

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest/fault"
)

// Sample is the state of the database at one time during the load.
type Sample struct {
	At     time.Duration
	Levels []Level // in order of name
}

// Level is an amount of which the database has two records.
type Level struct {
	Name string
	Says int64 // as stored in the row: the stock, the balance
	True int64 // as computed from everything that changed it; below 0: units were sold that never existed
}

// Total adds up all levels.
func (s Sample) Total() (sum Level) {
	for _, l := range s.Levels {
		sum.Says += l.Says
		sum.True += l.True
	}
	return sum
}

// SampleEvery is short enough for a curve, and long enough for the samples not to be a load.
const SampleEvery = 100 * time.Millisecond

// samplesMost bounds the samples of a long load. From then on the wait after each sample is at least
// lookShare times as long as the sample took, since the queries may be slow by then.
const (
	samplesMost = 1200
	lookShare   = 4
)

// Watch samples the levels until ctx ends. A failed sample is not an error, but a gap, since the server
// may be unavailable; only the first sample, before the fault, must succeed.
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

// thin drops every other sample, but not the first one in which Says and True differ.
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

// WatchSQL samples the levels of a database. The statement returns a row for each level: name, Says and
// True.
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
		rows, _ := conn.Query(ctx, sql) // CollectRows returns its error
		return pgx.CollectRows(rows, pgx.RowToStructByPos[Level])
	})
}

// Apart lists the levels whose Says and True differ.
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

// Level returns the stored amount of one level.
func (s Sample) Level(name string) (n int64, seen bool) {
	for _, l := range s.Levels {
		if l.Name == name {
			return l.Says, true
		}
	}
	return 0, false
}
