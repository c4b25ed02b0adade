// SPDX-License-Identifier: MIT

package loadtest

import (
	"errors"
	"slices"
	"testing"
)

// A scenario is run once more only if its first run shows nothing, and the second run is the result.
func TestTwiceIfVoid_RepeatsOnlyWhatShowsNothing(t *testing.T) {
	why := []string{"no fault"}
	void := Result{Verdict: Inconclusive, Detail: Detail{Inconclusive: why, Missed: why}}
	unchecked := Result{Verdict: Inconclusive, Detail: Detail{Inconclusive: []string{"no fault", "the history could not be checked"}, Missed: why}}
	safe, violated := Result{Verdict: Safe}, Result{Verdict: Violated, Detail: Detail{Inconclusive: why, Missed: why}}
	caught := Result{Verdict: Violated, AsExpected: true}
	broke := Result{Verdict: Violated, Violations: map[string]int64{"K": 1}, Detail: violated.Detail}
	violated.Violations = map[string]int64{"B": 1}
	failed := errors.New("no server")
	for name, c := range map[string]struct {
		fault  Fault
		runs   []Result
		err    error // of the last run
		again  bool
		expect Verdict
	}{
		"safe":              {"crash", []Result{safe}, nil, false, Safe},
		"violated":          {"crash", []Result{violated}, nil, false, Safe},
		"could not run":     {"crash", []Result{void}, failed, false, Safe},
		"void, then safe":   {"crash", []Result{void, safe}, nil, true, Safe},
		"void, then broken": {"crash", []Result{void, violated}, nil, true, Safe},
		"void twice":        {"crash", []Result{void, void}, nil, true, Safe},
		"not checked":       {"crash", []Result{unchecked}, nil, false, Safe},
		"void, then failed": {"crash", []Result{void, void}, failed, true, Safe},
		"nemesis":           {Nemesis, []Result{void}, nil, false, Safe},
		"control, caught":   {"none", []Result{caught}, nil, false, Violated},
		"control, no fault": {"none", []Result{violated, caught}, nil, true, Violated},
		"control, unkept":   {"none", []Result{broke}, nil, false, Violated},
	} {
		n := 0
		got, err := twiceIfVoid(Scenario{Flow: &Flow{}, Fault: c.fault, Expect: c.expect, Breaks: []string{"A", "B"}, Keeps: []string{"K"}}, func() (Result, error) {
			if n++; n == len(c.runs) {
				return c.runs[n-1], c.err
			}
			return c.runs[n-1], nil
		})
		last := c.runs[len(c.runs)-1]
		if n != len(c.runs) || !errors.Is(err, c.err) || got.Verdict != last.Verdict || c.again != slices.Equal(got.Again, why) {
			t.Errorf("%s: %s after %d runs, again %v, %v; want %s after %d, again %t, %v", name, got.Verdict, n, got.Again, err, last.Verdict, len(c.runs), c.again, c.err)
		}
	}
}

func TestHeadline_CountsSecondRuns(t *testing.T) {
	r := Report{Planned: 2, Scenarios: []Result{{Again: []string{"no fault"}}, {}}}
	if got, want := r.again(), "1 run a second time, since the first run showed nothing"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (Report{Scenarios: []Result{{}}}).again(); got != "" {
		t.Errorf("%q without a second run", got)
	}
}
