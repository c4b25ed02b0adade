// SPDX-License-Identifier: MIT

package soak

import (
	"fmt"
	"math"
	"slices"
)

// Gauge is a quantity, with the tolerance by which it is judged.
type Gauge struct {
	Name string `json:"name"`
	Unit string `json:"unit,omitempty"`
	From string `json:"from"` // where it is read

	Share  float64 `json:"-"`                   // the late median may exceed the early one by this share of it …
	Slack  float64 `json:"-"`                   // … plus this
	Steps  bool    `json:"-"`                   // judged to grow only if it rises in each fifth: see rises
	Most   float64 `json:"-"`                   // limit of every reading; 0: none
	Nature bool    `json:"by_nature,omitempty"` // grows by nature: reported, not judged
	Empty  bool    `json:"-"`                   // must be 0 at rest
	Back   bool    `json:"-"`                   // at rest, at most its value before the load plus Slack
}

// Point is one reading.
type Point struct {
	At    float64 `json:"at"` // seconds since the first reading
	Value float64 `json:"value"`
	shift int
}

// The shift numbers of readings outside of all shifts.
const (
	before = 0
	atRest = -1
)

// Verdict is the judgement on a series.
type Verdict string

// The verdicts. All but Bounded and ByNature are failures.
const (
	Bounded  Verdict = "bounded"
	Grows    Verdict = "grows"
	Left     Verdict = "left over" // still held at rest
	Void     Verdict = "void"      // too few readings
	ByNature Verdict = "by nature"
)

// Series are the readings of a gauge, and the judgement on them.
type Series struct {
	Gauge
	Before  float64  `json:"before"` // last reading before the load
	Early   float64  `json:"early"`  // median of the second fifth of the shifts
	Late    float64  `json:"late"`   // median of the last fifth
	Limit   float64  `json:"limit"`  // of Late, or of every reading if the gauge has Most
	Rest    float64  `json:"rest"`   // last reading after the load
	RestMax *float64 `json:"rest_limit,omitempty"`
	Verdict Verdict  `json:"verdict"`
	Why     string   `json:"why,omitempty"`
	Points  []Point  `json:"points"`
}

// Holds reports whether the series is no failure.
func (s Series) Holds() bool { return s.Verdict == Bounded || s.Verdict == ByNature }

// Label is the name with the unit.
func (s Series) Label() string {
	if s.Unit == "" {
		return s.Name
	}
	return s.Name + ", " + s.Unit
}

// The shifts of a soak are divided into parts. With fewer than FewestShifts a part has no shift.
const (
	parts        = 5
	FewestShifts = parts
)

// judge compares the readings of a soak of this many shifts.
func (s Series) judge(shifts int) Series {
	early, seenEarly := s.within(shifts/parts, 2*shifts/parts)
	late, seenLate := s.within((parts-1)*shifts/parts, shifts)
	rest := s.of(atRest)
	first := s.of(before)
	s.Before, s.Early, s.Late = last(first), median(early), median(late)
	s.Rest = last(rest)
	s.Limit = s.Early*(1+s.Share) + s.Slack
	s.limitAtRest(len(first) > 0)
	highest := highest(s.Points)
	switch {
	case s.Most > 0:
		s.Limit = s.Most
	case s.Nature:
		s.Limit = 0
	}
	switch {
	case shifts < FewestShifts || 2*seenEarly < shiftsOf(shifts, 1) || 2*seenLate < shiftsOf(shifts, parts-1) || len(rest) == 0:
		s.Verdict, s.Why = Void, fmt.Sprintf("read in %d shifts of the second fifth and %d of the last one, %d times at rest", seenEarly, seenLate, len(rest))
	case s.Nature:
		s.Verdict = ByNature
	case s.Most > 0 && highest > s.Most:
		s.Verdict, s.Why = Grows, fmt.Sprintf("up to %s, limit %s", figure(highest), figure(s.Most))
	case s.Most == 0 && s.Late > s.Limit && (!s.Steps || s.rises(shifts)):
		s.Verdict, s.Why = Grows, fmt.Sprintf("median %s in the second fifth and %s in the last one, limit %s", figure(s.Early), figure(s.Late), figure(s.Limit))
	case s.RestMax != nil && s.Rest > *s.RestMax:
		s.Verdict, s.Why = Left, fmt.Sprintf("%s at rest, limit %s, %s before the load", figure(s.Rest), figure(*s.RestMax), figure(s.Before))
	default:
		s.Verdict = Bounded
	}
	return s
}

// stepLeast is the share of the whole growth that each fifth of a leak has.
const stepLeast = 1.0 / 6

// rises reports whether a series grows from fifth to fifth. A pool opens connections, and a process
// starts threads, when many requests wait at once, as while a store is unavailable, and keeps them:
// that is a single step. A leak grows in every fifth.
func (s Series) rises(shifts int) bool {
	was := s.Early
	for n := 2; n < parts; n++ {
		values, _ := s.within(n*shifts/parts, (n+1)*shifts/parts)
		is := median(values)
		if is-was < stepLeast*(s.Late-s.Early) {
			return false
		}
		was = is
	}
	return true
}

// limitAtRest sets the limit of what may be left after the load.
func (s *Series) limitAtRest(seenBefore bool) {
	most := 0.0
	switch {
	case s.Back && seenBefore:
		most = s.Before + s.Slack
	case !s.Empty:
		return
	}
	s.RestMax = &most
}

// shiftsOf returns the number of shifts in part n, from 0.
func shiftsOf(shifts, n int) int { return (n+1)*shifts/parts - n*shifts/parts }

// within returns the readings of the shifts after from, up to and including to, and the number of
// shifts that have any.
func (s Series) within(from, to int) (values []float64, shifts int) {
	seen := map[int]bool{}
	for _, p := range s.Points {
		if p.shift > from && p.shift <= to {
			values, seen[p.shift] = append(values, p.Value), true
		}
	}
	return values, len(seen)
}

// of returns the readings of one shift.
func (s Series) of(shift int) (values []float64) {
	for _, p := range s.Points {
		if p.shift == shift {
			values = append(values, p.Value)
		}
	}
	return values
}

func last(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return values[len(values)-1]
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func highest(points []Point) (most float64) {
	for _, p := range points {
		most = max(most, p.Value)
	}
	return most
}

// pointsMost bounds the readings of a series that are kept for the page and prove.json.
const pointsMost = 240

// thin divides many readings into parts, and keeps the highest reading of each.
func thin(points []Point) []Point {
	part := len(points)/pointsMost + 1
	if part == 1 {
		return points
	}
	var kept []Point
	for some := range slices.Chunk(points, part) {
		kept = append(kept, slices.MaxFunc(some, func(a, b Point) int {
			if a.Value < b.Value {
				return -1
			}
			return 1
		}))
	}
	return kept
}

// figure formats a whole number or one from 100 without decimals, and any other with one decimal.
func figure(v float64) string {
	if v == math.Trunc(v) || v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// Row returns the figures of a series as text: before the load, early, late, the limit, at rest,
// and the limit at rest.
func (s Series) Row() []string {
	row := []string{figure(s.Before), figure(s.Early), figure(s.Late), "–", figure(s.Rest), "–"}
	if s.Limit > 0 {
		row[3] = figure(s.Limit)
	}
	if s.RestMax != nil {
		row[5] = figure(*s.RestMax)
	}
	return row
}

// Failed returns the series that do not hold.
func Failed(all []Series) []Series {
	return slices.DeleteFunc(slices.Clone(all), Series.Holds)
}
