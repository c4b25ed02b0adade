// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"shop/loadtest"
	"shop/loadtest/judge"
	"shop/loadtest/traffic"
)

// chart is a plot as shapes in SVG units, which the template draws. Colours are classes of the page's
// style sheet, with a light and a dark variant.
type chart struct {
	Width, Height            float64
	Left, Right, Top, Bottom float64 // edges of the plotting area
	XTicks, YTicks           []tick
	Bands                    []band
	Shapes                   []shape
	Zero                     float64 // y of a line at 0; 0: none
}

type tick struct {
	At    float64
	Label string
}

// band is the span of a fault.
type band struct{ X, Width, Height float64 }

// shape is a path, drawn as a line or as a filled area according to its class.
type shape struct{ Class, D string }

const (
	chartWidth  = 600
	chartHeight = 230
)

func newChart() chart {
	return chart{Width: chartWidth, Height: chartHeight, Left: 46, Right: chartWidth - 8, Top: 10, Bottom: chartHeight - 24}
}

// scale maps a span of values to a span of pixels.
func scale(from, to, low, high float64) func(float64) float64 {
	if to == from {
		to = from + 1
	}
	return func(v float64) float64 { return low + (v-from)/(to-from)*(high-low) }
}

// time adds the x axis, with ticks at whole seconds, and marks the faults.
func (c *chart) time(until time.Duration, r result) func(time.Duration) float64 {
	x := scale(0, until.Seconds(), c.Left, c.Right)
	at := func(d time.Duration) float64 { return min(c.Right, x(d.Seconds())) }
	step := max(1, math.Ceil(until.Seconds()/8))
	for s := 0.0; s <= until.Seconds(); s += step {
		c.XTicks = append(c.XTicks, tick{x(s), fmt.Sprintf("%.0f s", s)})
	}
	for _, e := range r.Events {
		from, to := at(e.At.Sub(r.Epoch)), at(e.Until.Sub(r.Epoch))
		c.Bands = append(c.Bands, band{from, max(1, to-from), c.Bottom - c.Top})
	}
	return at
}

// until returns the end of the time axis: when the last key of the load was decided, or its last attempt
// ended.
func (r result) until() time.Duration {
	last := time.Second
	for _, record := range r.Records[:r.Loaded] {
		last = max(last, record.DecidedAt(record.Last().End))
	}
	return last
}

// binsMost bounds the points of a line, and thereby the size of the page.
const binsMost = 40

// bins are spans of time of equal length. A line has one value for each.
type bins struct {
	width time.Duration
	n     int
}

func newBins(until time.Duration) bins {
	width := 100 * time.Millisecond
	for _, factor := range []time.Duration{2, 5, 10, 20, 50, 100, 300, 600, 3000, 6000} {
		if until <= binsMost*width {
			break
		}
		width = factor * 100 * time.Millisecond
	}
	width = max(width, until/binsMost+1)
	return bins{width, int(until/width) + 1}
}

// of returns the number of the bin of a time; the last one for a time after the end.
func (b bins) of(at time.Duration) int { return max(0, min(b.n-1, int(at/b.width))) }

// line draws the value of each bin at its middle, with a gap where the value is NaN.
func (b bins) line(class string, x func(time.Duration) float64, y func(float64) float64, values []float64) shape {
	var d strings.Builder
	command := "M"
	for i, v := range values {
		if math.IsNaN(v) {
			command = "M"
			continue
		}
		fmt.Fprintf(&d, "%s%.1f %.1f", command, x(time.Duration(i)*b.width+b.width/2), y(v))
		if command == "M" {
			d.WriteString("h0") // a dot if the next value is NaN
		}
		command = "L"
	}
	return shape{class, d.String()}
}

// Rate plots, per second, the keys that succeeded, the keys that were refused, and the answers that decided
// nothing.
func (r result) Rate() chart {
	c, until := newChart(), r.until()
	x, b := c.time(until, r), newBins(until)
	rates := map[traffic.Outcome][]float64{}
	count := func(outcome traffic.Outcome, at time.Duration) {
		if rates[outcome] == nil {
			rates[outcome] = make([]float64, b.n)
		}
		rates[outcome][b.of(at)] += 1 / b.width.Seconds()
	}
	for _, record := range r.Records[:r.Loaded] {
		if record.Outcome.Final() {
			count(record.Outcome, record.DecidedAt(0))
		}
		for _, a := range record.Attempts {
			if !a.Outcome.Final() {
				count(a.Outcome, a.End)
			}
		}
	}
	top := 1.0
	for _, values := range rates {
		top = max(top, slices.Max(values))
	}
	y := scale(0, top, c.Bottom, c.Top)
	for _, v := range niceSteps(0, top) {
		c.YTicks = append(c.YTicks, tick{y(v), fmt.Sprintf("%.0f/s", v)})
	}
	for _, outcome := range []traffic.Outcome{traffic.Rejected, traffic.OK, traffic.Open, traffic.Unknown} { // rare outcomes on top
		if values := rates[outcome]; values != nil {
			c.Shapes = append(c.Shapes, b.line("line "+string(outcome), x, y, values))
		}
	}
	return c
}

// Latencies plots the latencies of keys of writes by planned start: the median, p90 and the maximum of each
// bin, on a logarithmic scale.
func (r result) Latencies() chart {
	c, until := newChart(), r.until()
	x, b := c.time(until, r), newBins(until)
	took, top := make([][]float64, b.n), 1.0 // decades above 1 ms
	for _, record := range r.Records[:r.Loaded] {
		if record.Reads || record.GivesUp && !record.Outcome.Final() {
			continue
		}
		d := max(0, math.Log10(milliseconds(record.DecidedAt(until)-record.Planned)))
		i := b.of(record.Planned)
		took[i], top = append(took[i], d), max(top, math.Ceil(d))
	}
	y := scale(0, top, c.Bottom, c.Top)
	for d := 0.0; d <= top; d++ {
		c.YTicks = append(c.YTicks, tick{y(d), duration(math.Pow(10, d))})
	}
	for _, line := range []struct {
		class   string
		percent int
	}{{"line max", 100}, {"line p90", 90}, {"line p50", 50}} {
		values := make([]float64, b.n)
		for i, all := range took {
			slices.Sort(all)
			values[i] = math.NaN()
			if n := len(all); n > 0 {
				values[i] = all[(n*line.percent+99)/100-1]
			}
		}
		c.Shapes = append(c.Shapes, b.line(line.class, x, y, values))
	}
	return c
}

func duration(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%g s", ms/1000)
	}
	return fmt.Sprintf("%g ms", ms)
}

// Levels plots the flow's curves over time. Areas below 0 are filled.
func (r result) Levels() chart {
	c := newChart()
	r.Samples = thin(r.Samples, r.Scenario.Flow.Curves)
	x := c.time(r.until(), r)
	low, high := 0.0, 1.0
	for _, s := range r.Samples {
		for _, curve := range r.Scenario.Flow.Curves {
			low, high = min(low, float64(curve.Of(s))), max(high, float64(curve.Of(s)))
		}
	}
	if low < 0 {
		low *= 1.15
	}
	y := scale(low, high, c.Bottom, c.Top)
	for _, v := range niceSteps(low, high) {
		c.YTicks = append(c.YTicks, tick{y(v), fmt.Sprintf("%d", int(v))})
	}
	if low < 0 {
		c.Zero = y(0)
	}
	for _, curve := range r.Scenario.Flow.Curves {
		var line, below strings.Builder
		command, sunk := "M", false
		for _, s := range r.Samples {
			v := float64(curve.Of(s))
			sunk = sunk || v < 0
			if command == "M" {
				fmt.Fprintf(&below, "M%.1f %.1f", x(s.At), y(0))
			}
			fmt.Fprintf(&line, "%s%.1f %.1f", command, x(s.At), y(v))
			fmt.Fprintf(&below, "L%.1f %.1f", x(s.At), y(min(0, v)))
			command = "L"
		}
		if n := len(r.Samples); sunk {
			fmt.Fprintf(&below, "L%.1f %.1fZ", x(r.Samples[n-1].At), y(0))
			c.Shapes = append(c.Shapes, shape{"below", below.String()})
		}
		c.Shapes = append(c.Shapes, shape{curve.Class, line.String()})
	}
	return c
}

// thin reduces many samples: in each of about binsMost parts it keeps those with the least and the greatest
// value of each curve.
func thin(samples []judge.Sample, curves []loadtest.Curve) (kept []judge.Sample) {
	part := len(samples)/binsMost + 1
	if part <= 2*len(curves) {
		return samples
	}
	for some := range slices.Chunk(samples, part) {
		var keep []int
		for _, curve := range curves {
			low, high := 0, 0
			for i, s := range some {
				switch v := curve.Of(s); {
				case v < curve.Of(some[low]):
					low = i
				case v > curve.Of(some[high]):
					high = i
				}
			}
			keep = append(keep, low, high)
		}
		slices.Sort(keep)
		for _, i := range slices.Compact(keep) {
			kept = append(kept, some[i])
		}
	}
	return kept
}

// niceSteps returns multiples of a round number between two values.
func niceSteps(low, high float64) []float64 {
	rough := (high - low) / 4
	step := math.Pow(10, math.Floor(math.Log10(max(1, rough))))
	for _, m := range []float64{5, 2.5, 2} {
		if step*m <= rough {
			step *= m
			break
		}
	}
	step = math.Ceil(step)
	var steps []float64
	for v := math.Ceil(low/step) * step; v <= high; v += step {
		steps = append(steps, v)
	}
	return steps
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// timeline has a row for each request of a part of a story.
type timeline struct {
	Rows                       []row
	Width, Height, Left, Right float64
	XTicks                     []tick
}

// row is one request: when it was under way, what it did and where, and its result.
type row struct {
	X, Y, Width float64
	Who, Then   string
	Class       string
}

const (
	storyWidth = 920
	storyLeft  = 150
	storyRight = 760
	rowHeight  = 26
)

// drawBars draws the requests of a part of a story.
func drawBars(bars []loadtest.Bar) timeline {
	t := timeline{Width: storyWidth, Left: storyLeft, Right: storyRight, Height: float64(len(bars)*rowHeight) + 34}
	if len(bars) == 0 {
		return t
	}
	from, to := time.Duration(math.MaxInt64), time.Duration(0)
	for _, b := range bars {
		from, to = min(from, b.Start), max(to, b.End)
	}
	x := scale(0, milliseconds(to-from), storyLeft, storyRight)
	for i, b := range bars {
		start, end := x(milliseconds(b.Start-from)), x(milliseconds(b.End-from))
		class := "fine"
		if b.Over {
			class = "over"
		}
		t.Rows = append(t.Rows, row{X: start, Y: float64(i*rowHeight) + 8, Width: max(3, end-start), Class: class, Who: b.Who, Then: b.Then})
	}
	for _, v := range niceSteps(0, milliseconds(to-from)) {
		t.XTicks = append(t.XTicks, tick{x(v), fmt.Sprintf("+%.0f ms", v)})
	}
	return t
}
