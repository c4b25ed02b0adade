// SPDX-License-Identifier: MIT

package report

import (
	"cmp"
	"math"
	"slices"
	"time"

	"shop/loadtest"
	"shop/loadtest/traffic"
)

// chart is the data of a plot, which plot.js draws with uPlot. Times are in seconds since the load began.
type chart struct {
	At     []float64    `json:"at"`
	Lines  []line       `json:"lines"`
	Until  float64      `json:"until"`
	Faults [][2]float64 `json:"faults"` // the spans of the faults
	Unit   string       `json:"unit"`   // of the values; ms are on a logarithmic scale

	bin time.Duration
}

// line has a value for each time of its chart. A value that is nil is a gap.
type line struct {
	Name   string `json:"name"`
	Color  string `json:"color"` // a variable of the style sheet, with a light and a dark variant
	Dashed bool   `json:"dashed"`
	Values []any  `json:"values"`
}

// binsMost bounds the points of a line, and thereby the size of the page.
const binsMost = 40

// newChart returns a chart without lines, whose times are the middles of bins of equal length. It ends when the last key
// of the load was decided, or its last attempt ended.
func (r result) newChart(unit string) chart {
	const shortest = 100 * time.Millisecond
	until := time.Second
	for _, record := range r.Records[:r.Loaded] {
		until = max(until, record.DecidedAt(record.Last().End))
	}
	c := chart{Lines: []line{}, Until: seconds(until), Unit: unit, bin: max(shortest, (until/binsMost + shortest - 1).Truncate(shortest))}
	for from := time.Duration(0); from <= until; from += c.bin {
		c.At = append(c.At, seconds(min(until, from+c.bin/2)))
	}
	for _, e := range r.Events {
		c.Faults = append(c.Faults, [2]float64{seconds(e.At.Sub(r.Epoch)), seconds(e.Until.Sub(r.Epoch))})
	}
	return c
}

// in returns the number of the bin of a time; the last one for a time after the end.
func (c chart) in(at time.Duration) int { return max(0, min(len(c.At)-1, int(at/c.bin))) }

// Rate plots, per second, the keys of writes that succeeded, those that were refused, and the answers that decided
// nothing.
func (r result) Rate() chart {
	c := r.newChart("/s")
	counts := map[string][]int{}
	count := func(outcome traffic.Outcome, at time.Duration) {
		if counts[string(outcome)] == nil {
			counts[string(outcome)] = make([]int, len(c.At))
		}
		counts[string(outcome)][c.in(at)]++
	}
	for _, record := range r.Records[:r.Loaded] {
		if record.Reads {
			continue
		}
		if record.Outcome.Final() {
			count(record.Outcome, record.DecidedAt(0))
		}
		for _, a := range record.Attempts {
			if !a.Outcome.Final() {
				count(a.Outcome, a.End)
			}
		}
	}
	for _, l := range []line{ // rare outcomes on top
		{Name: "refused", Color: string(traffic.Rejected)},
		{Name: r.Scenario.Flow.Words.Done, Color: string(traffic.OK)},
		{Name: "nothing done, retried", Color: string(traffic.Open)},
		{Name: "unknown, retried", Color: string(traffic.Unknown)},
	} {
		for _, n := range counts[l.Color] {
			l.Values = append(l.Values, math.Round(float64(n)/c.bin.Seconds()))
		}
		if l.Values != nil {
			c.Lines = append(c.Lines, l)
		}
	}
	return c
}

// Latencies plots the latencies of keys of writes by planned start: the median, p90 and the maximum of each
// bin.
func (r result) Latencies() chart {
	c := r.newChart("ms")
	took := make([][]float64, len(c.At))
	end := time.Duration(c.Until * float64(time.Second))
	for _, record := range r.Records[:r.Loaded] {
		if !record.Reads && (!record.GivesUp || record.Outcome.Final()) {
			i := c.in(record.Planned)
			took[i] = append(took[i], max(1, math.Round(milliseconds(record.DecidedAt(end)-record.Planned))))
		}
	}
	c.Lines = []line{{Name: "max", Color: "unknown"}, {Name: "p90", Color: "open"}, {Name: "p50", Color: "ok"}}
	for _, all := range took {
		slices.Sort(all)
		for i, percent := range []int{100, 90, 50} {
			var value any
			if n := len(all); n > 0 {
				value = all[(n*percent+99)/100-1]
			}
			c.Lines[i].Values = append(c.Lines[i].Values, value)
		}
	}
	return c
}

// Levels plots the flow's curves.
func (r result) Levels() chart {
	c, flow := r.newChart(""), r.Scenario.Flow
	c.At = nil
	for _, s := range r.Samples {
		c.At = append(c.At, seconds(s.At))
	}
	for _, curve := range flow.Curves {
		l := line{Name: curve.Name, Color: "ok", Dashed: curve.Dashed}
		switch {
		case curve.Dashed:
			l.Color = "ink"
		case r.Violations[flow.Number] != 0:
			l.Color = "bad"
		}
		for _, s := range r.Samples {
			l.Values = append(l.Values, curve.Of(s))
		}
		c.Lines = append(c.Lines, l)
	}
	return c
}

func seconds(d time.Duration) float64      { return d.Round(time.Millisecond).Seconds() }
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// timeline is when each request of a story was under way.
type timeline struct {
	Rows []row
	For  float64 // ms
}

// row is a request, with its place in the time line in percent.
type row struct {
	loadtest.Bar
	Left, Width float64
}

func newTimeline(bars []loadtest.Bar) (t timeline) {
	if len(bars) == 0 {
		return t
	}
	from := slices.MinFunc(bars, func(a, b loadtest.Bar) int { return cmp.Compare(a.Start, b.Start) }).Start
	to := slices.MaxFunc(bars, func(a, b loadtest.Bar) int { return cmp.Compare(a.End, b.End) }).End
	t.For = milliseconds(to - from)
	percent := func(d time.Duration) float64 { return 100 * float64(d) / float64(max(1, to-from)) }
	for _, b := range bars {
		t.Rows = append(t.Rows, row{b, percent(b.Start - from), percent(b.End - b.Start)})
	}
	return t
}
