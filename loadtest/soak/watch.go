// SPDX-License-Identifier: MIT

package soak

import (
	"context"
	"sync"
	"time"
)

// Source is a process or a server whose gauges are read together.
type Source struct {
	Gauges []Gauge
	// Read returns a value for each gauge, in their order. An error leaves a gap in the series: the
	// server may be restarting.
	Read func(context.Context) ([]float64, error)
}

// readWait bounds the reading of a source: a server that does not answer must not delay the others.
const readWait = 5 * time.Second

// Watch reads sources and keeps their readings.
type Watch struct {
	sources []Source
	began   time.Time

	reading sync.Mutex // one round at a time

	mu     sync.Mutex
	shift  int
	shifts int
	series [][]Series // by source and gauge
}

// New returns a Watch without readings.
func New(sources ...Source) *Watch {
	w := &Watch{sources: sources, began: time.Now()}
	for _, s := range sources {
		series := make([]Series, len(s.Gauges))
		for i, g := range s.Gauges {
			series[i].Gauge = g
		}
		w.series = append(w.series, series)
	}
	return w
}

// Shift begins the next shift.
func (w *Watch) Shift() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shifts++
	w.shift = w.shifts
}

// Rest marks the following readings as taken at rest: the load has ended and all leases have expired.
func (w *Watch) Rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shift = atRest
}

// Run reads until ctx ends.
func (w *Watch) Run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.Look(ctx)
		}
	}
}

// Look reads every source once. A reading belongs to the shift during which it completes.
func (w *Watch) Look(ctx context.Context) {
	w.reading.Lock()
	defer w.reading.Unlock()
	var all sync.WaitGroup
	for n, source := range w.sources {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, readWait)
			defer cancel()
			values, err := source.Read(ctx)
			if err == nil && len(values) == len(source.Gauges) {
				w.add(n, values)
			}
		})
	}
	all.Wait()
}

func (w *Watch) add(source int, values []float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Since(w.began).Seconds()
	for i, v := range values {
		s := &w.series[source][i]
		s.Points = append(s.Points, Point{At: at, Value: v, shift: w.shift})
	}
}

// Judge returns the judged series, in the order of their sources.
func (w *Watch) Judge() (all []Series) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, source := range w.series {
		for _, s := range source {
			judged := s.judge(w.shifts)
			judged.Points = thin(s.Points)
			all = append(all, judged)
		}
	}
	return all
}

// Rested reports whether no series is left over at rest.
func (w *Watch) Rested() bool {
	for _, s := range w.Judge() {
		if s.Verdict == Left {
			return false
		}
	}
	return true
}
