// SPDX-License-Identifier: MIT

// Package bench has the rows of report/bench.json: what two programs measured of a strategy and its baseline, and
// whether it is what is wanted. The targets are in targets.go.
package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Row is the result of one comparison.
type Row struct {
	Case              string   `json:"case"`
	Strategy          string   `json:"strategy"`
	Clients           int      `json:"clients"`
	Processes         int      `json:"processes"`
	WorkMS            float64  `json:"work_ms"`
	PerSecond         float64  `json:"per_second"`
	P50               float64  `json:"p50_ms"`
	P99               float64  `json:"p99_ms"`
	Baseline          string   `json:"baseline"`
	Ratio             float64  `json:"ratio"`
	Low               float64  `json:"low"`
	High              float64  `json:"high"`
	BaselinePerSecond float64  `json:"baseline_per_second"`
	BaselineP99       float64  `json:"baseline_p99_ms"`
	Fairness          float64  `json:"fairness"` // the fewest requests of a process divided by the most; 1 with one process
	Targets           []Target `json:"targets"`
}

// Name returns the load of a row.
func (r Row) Name() string {
	return fmt.Sprintf("%s/%d/%d/%v", r.Case, r.Clients, r.Processes, time.Duration(r.WorkMS*float64(time.Millisecond)))
}

// Sample is one measurement of one strategy.
type Sample struct {
	Waits []time.Duration // of each request that was answered
	Each  []int           // requests of each process
	Over  time.Duration
}

// PerSecond returns the rate of the requests that were answered.
func (s Sample) PerSecond() float64 { return float64(len(s.Waits)) / s.Over.Seconds() }

func (s Sample) p50() float64 { return s.quantile(50) }
func (s Sample) p99() float64 { return s.quantile(99) }

func (s Sample) quantile(percent int) float64 {
	slices.Sort(s.Waits)
	return s.Waits[(len(s.Waits)-1)*percent/100].Seconds() * 1000
}

func (s Sample) fairness() float64 {
	return float64(slices.Min(s.Each)) / float64(max(1, slices.Max(s.Each)))
}

// Fill computes the figures of a row from the samples of pairs, of the strategy and of the baseline, in the same
// order. The ratio is the median of those of the pairs.
func (r *Row) Fill(strategy, baseline []Sample) {
	var ratios []float64
	for i := range strategy {
		ratios = append(ratios, strategy[i].PerSecond()/baseline[i].PerSecond())
	}
	r.Low, r.Ratio, r.High = Interval(ratios)
	r.PerSecond, r.BaselinePerSecond = middle(strategy, Sample.PerSecond), middle(baseline, Sample.PerSecond)
	r.P50, r.P99, r.BaselineP99 = middle(strategy, Sample.p50), middle(strategy, Sample.p99), middle(baseline, Sample.p99)
	r.Fairness = middle(strategy, Sample.fairness)
	r.judge()
}

func middle(samples []Sample, figure func(Sample) float64) float64 {
	var list []float64
	for _, s := range samples {
		list = append(list, figure(s))
	}
	_, median, _ := Interval(list)
	return median
}

// Interval returns the median, and the range without the smallest and the largest, if there are at least three.
func Interval(list []float64) (low, median, high float64) {
	s := slices.Sorted(slices.Values(list))
	n := len(s)
	cut := min(1, (n-1)/2)
	return s[cut], (s[(n-1)/2] + s[n/2]) / 2, s[n-1-cut]
}

// Header names the columns of String.
func Header() string {
	return fmt.Sprintf("%-28s %-9s %-18s %23s %9s %9s %9s %9s %7s  %s",
		"case/clients/processes/work", "strategy", "baseline", "ratio", "/s", "base /s", "p99 ms", "base p99", "min/max", "targets")
}

func (r Row) String() string {
	text := fmt.Sprintf("%-28s %-9s %-18s %7.2f [%6.2f,%6.2f] %9.0f %9.0f %9.1f %9.1f %7.2f ",
		r.Name(), r.Strategy, r.Baseline, r.Ratio, r.Low, r.High, r.PerSecond, r.BaselinePerSecond, r.P99, r.BaselineP99, r.Fairness)
	for _, t := range r.Targets {
		text += " " + t.String()
	}
	return text
}

// Write writes the rows to a file. A row that the file has remains, unless one of rows is of the same measurement.
func Write(file string, rows []Row) error {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var before []Row
	if err == nil {
		if err := json.Unmarshal(text, &before); err != nil {
			return fmt.Errorf("%s: %w: remove it", file, err)
		}
	}
	before = slices.DeleteFunc(before, func(old Row) bool {
		return slices.ContainsFunc(rows, func(r Row) bool {
			return r.Name() == old.Name() && r.Strategy == old.Strategy && r.Baseline == old.Baseline
		})
	})
	data, err := json.MarshalIndent(append(before, rows...), "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err == nil {
		err = os.WriteFile(file, append(data, '\n'), 0o644)
	}
	return err
}
