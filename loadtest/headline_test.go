// SPDX-License-Identifier: MIT

package loadtest

import (
	"testing"

	"shop/loadtest/fault"
)

func TestHeadline_SaysWhatWasTriedAndWhatWasFound(t *testing.T) {
	scenario := func(expect, verdict Verdict, met bool) Result {
		return Result{
			Flow: "inventory", Expect: expect, Verdict: verdict, AsExpected: met, Requests: 20_000, Reads: 500,
			Detail: Detail{Events: []fault.Event{{What: "redis killed", Hits: 1}, {What: "locks deleted", Hits: 70}, {What: "nothing hit"}}},
		}
	}
	safe, caught := scenario(Safe, Safe, true), scenario(Violated, Violated, true)
	broken, void, slipped := scenario(Safe, Violated, false), scenario(Safe, Inconclusive, false), scenario(Violated, Safe, false)
	accident := scenario(Violated, Violated, false) // violated, but not the invariant that must be
	for _, c := range []struct {
		of   []Result
		want string
	}{
		{[]Result{safe}, "1 scenario, 20,500 operations, 71 faults: no violation in 1 safe one."},
		{[]Result{safe, safe, caught}, "3 scenarios, 61,500 operations, 213 faults: no violation in 2 safe ones, the known-bad one caught."},
		{[]Result{caught, caught}, "2 scenarios, 41,000 operations, 142 faults: both known-bad ones caught."},
		{[]Result{caught, caught, caught}, "3 scenarios, 61,500 operations, 213 faults: all 3 known-bad ones caught."},
		{[]Result{safe, broken, void, caught, slipped, accident}, "6 scenarios, 123,000 operations, 426 faults: violations in 1 of 3 safe ones, 1 of 3 safe ones inconclusive, only 1 of 3 known-bad ones caught."},
	} {
		if got := (Report{Scenarios: c.of, Planned: len(c.of)}).Headline(); got != c.want {
			t.Errorf("%s\nwant\n%s", got, c.want)
		}
	}
	foreign := Result{Flow: TargetFlow, Expect: Safe, Verdict: Safe, AsExpected: true, Requests: 999}
	if got := (Report{Scenarios: []Result{foreign}}).Headline(); got != "1 scenario, 999 operations: no violation in 1 safe one." {
		t.Error(got)
	}
	if got := (Report{Scenarios: []Result{safe}, Planned: 2}).Headline(); got != "This run was called off after 1 of 2." {
		t.Error(got)
	}
}
