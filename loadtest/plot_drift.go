package loadtest

import (
	"fmt"
	"strings"
)

// Drift is how far balances and entries are apart over time.
func (r Result) Drift() chart {
	c := newChart()
	x := c.time(r.until(), r)
	high := 1.0
	for _, s := range r.Samples {
		high = max(high, s.drift())
	}
	y := scale(0, high, c.Bottom, c.Top)
	for _, v := range niceSteps(0, high) {
		c.YTicks = append(c.YTicks, tick{y(v), fmt.Sprintf("%d", int(v))})
	}
	var line strings.Builder
	for i, s := range r.Samples {
		command := "L"
		if i == 0 {
			command = "M"
		}
		fmt.Fprintf(&line, "%s%.1f %.1f", command, x(s.At), y(s.drift()))
	}
	c.Shapes = append(c.Shapes, shape{"line true", line.String()})
	return c
}

// drift is that level of a sample.
func (s Sample) drift() float64 {
	for _, l := range s.Levels {
		if l.Name == driftLevel {
			return float64(l.Says)
		}
	}
	return 0
}
