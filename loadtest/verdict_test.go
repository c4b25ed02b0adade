// SPDX-License-Identifier: MIT

package loadtest

import (
	"maps"
	"testing"
)

var clean = map[string]int64{"S1": 0, "S2": 0, "I-ACK": 0, "I-REJ": 0, "I-ONCE": 0, "I-WHOLE": 0, "I-LIVE": 0, "I-SOLD": 0, "oversold": 0}

func broken(names ...string) map[string]int64 {
	violations := maps.Clone(clean)
	for _, name := range names {
		violations[name] = 3
	}
	return violations
}

func TestJudge(t *testing.T) {
	f := &Flow{Name: "inventory", Number: "oversold"}
	kept := []string{"I-ACK", "I-REJ", "I-ONCE", "I-WHOLE"}
	naive, lockLost, row := f.Control("naive", NoFault, kept, "S1"), f.Control("redis-only", "lock-lost", kept, "S1"), f.Safe("row", NoFault)
	nothingShown := []string{"no overlap"}
	for _, c := range []struct {
		name       string
		scenario   Scenario
		violations map[string]int64
		reasons    []string
		verdict    Verdict
		asExpected bool
	}{
		{"a safe one that is safe", row, clean, nil, Safe, true},
		{"a safe one that oversells", row, broken("S1", "oversold"), nil, Violated, false},
		{"a safe one that loses an order", row, broken("I-ACK"), nil, Violated, false},
		{"a safe one that sells nothing: everything 503", row, broken("I-LIVE", "I-SOLD"), nil, Violated, false},
		{"a safe one that leaves stock unsold", row, broken("I-SOLD"), nil, Violated, false},
		{"a safe one of which nothing was seen", row, clean, nothingShown, Inconclusive, false},
		{"a control that is caught", naive, broken("S1", "S2", "oversold"), nil, Violated, true},
		{"a control that is not caught", naive, clean, nil, Safe, false},
		{"a control that breaks something else", naive, broken("S2"), nil, Violated, false},
		{"a control that breaks what it must keep", naive, broken("S1", "I-ONCE"), nil, Violated, false},
		{"a control whose fault missed", lockLost, clean, nothingShown, Inconclusive, false},
		{"a control that broke without its fault", lockLost, broken("S1"), nothingShown, Violated, false},
	} {
		verdict, asExpected := Judge(c.scenario, c.violations, c.reasons)
		if verdict != c.verdict || asExpected != c.asExpected {
			t.Errorf("%s: %s, as expected %v; want %s, %v", c.name, verdict, asExpected, c.verdict, c.asExpected)
		}
	}
}
