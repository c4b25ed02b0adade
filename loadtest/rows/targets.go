// SPDX-License-Identifier: MIT

package bench

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
)

// Target is a bound for a figure of a row.
type Target struct {
	Figure string  `json:"figure"`
	Sign   string  `json:"sign"`
	Bound  float64 `json:"bound"`
	Met    bool    `json:"met"`
}

// figures are what a Target bounds.
var figures = map[string]func(Row) float64{
	"ratio":    func(r Row) float64 { return r.Ratio },
	"low":      func(r Row) float64 { return r.Low },
	"p99 ms":   func(r Row) float64 { return r.P99 },
	"p99/base": func(r Row) float64 { return r.P99 / r.BaselineP99 },
	"min/max":  func(r Row) float64 { return r.Fairness },
}

// The signs of a Target.
const (
	atLeast = "≥"
	atMost  = "≤"
)

// wanted are the targets of rows without work, by a pattern of case, clients and processes, and by the baseline. "":
// any baseline.
var wanted = []struct {
	row, baseline string
	figure, sign  string
	bound         float64
}{
	{"product/1/1", "redis+row", "ratio", atLeast, 0.85},
	{"product/32/1", "row", "ratio", atLeast, 15},
	{"product/32/1", "row", "p99/base", atMost, 0.1},
	{"product/256/1", "row", "ratio", atLeast, 30},
	{"product/256/1", "row", "p99/base", atMost, 0.1},
	{"product/1024/1", "row", "ratio", atLeast, 30},
	{"product/1024/1", "row", "p99/base", atMost, 0.1},
	{"account/1/1", "etcd-fenced", "ratio", atLeast, 0.85},
	{"account/256/1", "row", "ratio", atLeast, 20},
	{"wallet/32/1", "lockid-no-queue", "ratio", atLeast, 10},
	{"wallet/32/1", "lockid-no-queue", "p99 ms", atMost, 200},
	{"wallet/3?/3", "lockid-no-queue", "ratio", atLeast, 10}, // 32 clients cannot be divided by three
	{"wallet/3?/3", "lockid-no-queue", "p99 ms", atMost, 200},
	{"wallet/3?/3", "lockid-no-queue", "min/max", atLeast, 0.5},
	{"http-product/256/3", "empty POST", "ratio", atLeast, 0.5},
	{"lock/64/1", "", "ratio", atLeast, 10},
	{"lock/64/4", "", "ratio", atLeast, 1},
	{"lock/64/4", "", "min/max", atLeast, 0.5},
	{"many/32/1", "redis+row", "ratio", atLeast, 0.85},
}

// judge compares a row with its targets.
func (r *Row) judge() {
	r.Targets = []Target{}
	for _, w := range wanted {
		if of, err := path.Match(w.row+"/0s", r.Name()); err != nil || !of || w.baseline != "" && w.baseline != r.Baseline {
			continue
		}
		r.Targets = append(r.Targets, r.target(w.figure, w.sign, w.bound))
	}
}

func (r Row) target(figure, sign string, bound float64) Target {
	is := figures[figure](r)
	return Target{figure, sign, bound, is >= bound && sign == atLeast || is <= bound && sign == atMost}
}

func (t Target) String() string {
	return fmt.Sprintf("%s %s %v: %s", t.Figure, t.Sign, t.Bound, said(t.Met))
}

func said(met bool) string {
	if met {
		return "met"
	}
	return "missed"
}

// growth is how much of the best rate with fewer clients a strategy must keep with more.
const growth = 0.85

// Growth returns a line for each case that was measured with several numbers of clients, in one process and without
// work: whether each rate is at least growth times the best one with fewer clients.
func Growth(rows []Row) (lines []string) {
	byCase := map[string][]Row{}
	var cases []string
	for _, r := range rows {
		points := byCase[r.Case]
		if r.Processes != 1 || r.WorkMS != 0 || slices.ContainsFunc(points, func(p Row) bool { return p.Clients == r.Clients }) {
			continue
		}
		if len(points) == 0 {
			cases = append(cases, r.Case)
		}
		byCase[r.Case] = append(points, r)
	}
	for _, name := range cases {
		points := byCase[name]
		if len(points) < 2 {
			continue
		}
		slices.SortFunc(points, func(a, b Row) int { return a.Clients - b.Clients })
		worst, best, rates := math.Inf(1), 0.0, []string{}
		for _, p := range points {
			if best > 0 {
				worst = min(worst, p.PerSecond/best)
			}
			best = max(best, p.PerSecond)
			rates = append(rates, fmt.Sprintf("%d: %.0f/s", p.Clients, p.PerSecond))
		}
		lines = append(lines, fmt.Sprintf("%s as clients grow: %s; least of the best with fewer %.2f ≥ %v: %s",
			name, strings.Join(rates, ", "), worst, growth, said(worst >= growth)))
	}
	return lines
}
