// SPDX-License-Identifier: MIT

package loadtest

import (
	"slices"
	"testing"
	"time"

	"shop/loadtest/traffic"
)

func TestLinearized_SaysHowManyOperationsOfEachFlowWereChecked(t *testing.T) {
	report := Report{Scenarios: []Result{{Flow: "inventory", Checked: 60_000}, {Flow: "wallet", Checked: 48_647}, {Flow: "inventory", Checked: 49_506}}}
	for _, s := range report.Scenarios {
		report.checked(s)
	}
	if got := report.Linearized(); got != "Checked for linearizability: 109,506 operations of inventory, 48,647 operations of wallet." || len(report.TooFew()) != 0 {
		t.Errorf("a part of the matrix: %s", got)
	}
	report.CheckedLeast = CheckedLeast
	if got := report.Linearized(); got != "Checked for linearizability: 109,506 operations of inventory, 48,647 operations of wallet; NOT AS EXPECTED: the whole proof needs at least 100,000 operations of wallet." {
		t.Errorf("all of it: %s", got)
	}
	if few := report.TooFew(); !slices.Equal(few, []string{"wallet"}) {
		t.Errorf("too few of %v, want wallet", few)
	}
	if got := (Report{Scenarios: []Result{{Flow: TargetFlow}}}).Linearized(); got != "" {
		t.Errorf("nothing was checked: %s", got)
	}
}

func TestLengthen_OnlyTheScenariosThatTheFlowNames(t *testing.T) {
	const slow = Fault("slow")
	f := &Flow{Name: "x", Timing: Timing{Long: []string{"right/none"}, Slower: 2}, Faults: []FaultSpec{{Fault: slow, Slower: 2}}}
	l := traffic.Load{Rate: 200, Duration: 8 * time.Second}
	if got := f.lengthen(l, f.Safe("right", slow)); got != l {
		t.Errorf("%+v, want as it was", got)
	}
	if got := f.lengthen(l, f.Safe("right", Crash)); got.Rate != l.Rate/2 || got.Duration != 2*l.Duration {
		t.Errorf("half of the rate: %+v", got)
	}
	got := f.Load(f.lengthen(l, f.Safe("right", NoFault)), NoFault, time.Second)
	if got.Duration != calmer*long*l.Duration || got.Rate != l.Rate/2/calmer {
		t.Errorf("%+v, want %d times as long, at the rate of the flow", got, calmer*long)
	}
}
