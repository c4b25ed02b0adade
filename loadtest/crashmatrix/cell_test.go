// SPDX-License-Identifier: MIT

package crashmatrix

import (
	"slices"
	"strings"
	"testing"
	"time"

	"shop/loadtest"
)

// withCells returns a flow with a crash matrix of three steps: its control, and the strategy whose cells are all tried.
func withCells() (f *loadtest.Flow, control, safe loadtest.Scenario) {
	f = &loadtest.Flow{Name: "f", Faults: []loadtest.FaultSpec{{Fault: loadtest.NoFault}}}
	f.Controls = []loadtest.Scenario{f.Control("wrong", loadtest.NoFault, []string{"S2"}, "S1")}
	cells := &Cells{
		Strategy: "right", Steps: []string{afterGuard, afterCommit, "after-release"}, Locks: "redis", Database: "postgres",
	}
	cells.Add(f)
	return f, f.Controls[1], f.Controls[2]
}

// allAre returns the cells of a scenario, all with one verdict.
func allAre(s loadtest.Scenario, verdict Verdict) Results {
	cells := slices.Clone(s.Experiment.(Matrix).Tried)
	for i := range cells {
		cells[i].Verdict = verdict
	}
	return cells
}

func unshown(s loadtest.Scenario, cells Results) []string {
	_, reasons := s.Experiment.Judge(s.Expect, cells)
	return reasons
}

func TestCells_AreEachStepUnderEachFault(t *testing.T) {
	f, _, safe := withCells()
	seen := map[string]bool{}
	m := safe.Experiment.(Matrix)
	for _, c := range m.Tried {
		seen[c.String()] = true
	}
	if len(seen) != 3*(2+2*2) || !seen["after-guard × cut from postgres, answers lost"] || !seen["after-commit × killed"] {
		t.Errorf("%v", seen)
	}
	if cells := f.Safe("right", loadtest.Crash).Experiment; cells != nil {
		t.Errorf("another fault has cells: %v", cells)
	}
	for _, step := range m.Steps {
		if got, want := m.uses("redis", step), step != "after-release"; got != want {
			t.Errorf("Redis is used after %s: %t", step, got)
		}
		if got, want := m.uses("postgres", step), step == afterGuard; got != want {
			t.Errorf("PostgreSQL is used after %s: %t", step, got)
		}
	}
}

func TestCells_TheMatrixOfScenariosHasTheDefaultStrategyAndTheControls(t *testing.T) {
	f, control, _ := withCells()
	var names []string
	for _, s := range f.Matrix([]loadtest.Strategy{{Name: "right", Safe: true}, {Name: "other", Safe: true}}) {
		if s.Fault == Name {
			names = append(names, s.Name())
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"f/right/crash-matrix", "f/wrong/crash-matrix"}) {
		t.Errorf("%v", names)
	}
	if cells := control.Experiment.(Matrix).Tried; len(cells) != 1 || cells[0].String() != "after-guard × paused past the TTL" {
		t.Errorf("the control tries %v", cells)
	}
	if !slices.Equal(control.Breaks, []string{"S1", "I-CELL"}) || !slices.Equal(f.Controls[0].Breaks, []string{"S1"}) || !slices.Equal(control.Keeps, []string{"S2"}) {
		t.Errorf("the control breaks %q and keeps %q", control.Breaks, control.Keeps)
	}
}

func TestJudge_ACellWithoutAHitFailsTheRun(t *testing.T) {
	_, _, s := withCells()
	cells := allAre(s, OK)
	if reasons := unshown(s, cells); len(reasons) != 0 {
		t.Fatalf("%q", reasons)
	}
	cells[3].Verdict, cells[3].Why = Empty, []string{"the request did not reach the step"}
	reasons := unshown(s, cells)
	if verdict, met := loadtest.Judge(s, nil, reasons); verdict != loadtest.Inconclusive || met || len(reasons) != 1 || !strings.Contains(reasons[0], cells[3].String()) {
		t.Errorf("%s %t: %q", verdict, met, reasons)
	}
	if reasons := unshown(s, cells[:2]); len(reasons) != 1 || !strings.Contains(reasons[0], "2 of 18") {
		t.Errorf("cells that were not tried: %q", reasons)
	}
	if _, reasons := s.Experiment.Judge(s.Expect, nil); len(reasons) != 1 || !strings.Contains(reasons[0], "0 of 18") {
		t.Errorf("no cell was tried: %q", reasons)
	}
}

func TestJudge_AViolatedCellBreaksAnInvariant(t *testing.T) {
	_, _, s := withCells()
	cells := allAre(s, OK)
	if found, _ := s.Experiment.Judge(s.Expect, cells); len(found) != 1 || found["I-CELL"].Count != 0 {
		t.Errorf("%v, want I-CELL, which holds", found)
	}
	cells[0].Verdict, cells[0].Why = Violated, []string{"S1: product"}
	found, _ := s.Experiment.Judge(s.Expect, cells)
	if ids := found["I-CELL"].IDs; len(ids) != 1 || !strings.Contains(ids[0], "S1: product") {
		t.Errorf("%q", ids)
	}
	if verdict, met := loadtest.Judge(s, found.Counts(), nil); verdict != loadtest.Violated || met {
		t.Errorf("%s %t", verdict, met)
	}
}

func TestJudge_EachCellOfAControlMustBeViolated(t *testing.T) {
	_, s, safe := withCells()
	s.Experiment = Matrix{s.Experiment.(Matrix).Cells, safe.Experiment.(Matrix).Tried[:2]}
	cells := allAre(s, Violated)
	if reasons := unshown(s, cells); len(reasons) != 0 {
		t.Errorf("%q", reasons)
	}
	cells[1].Verdict = OK
	if reasons := unshown(s, cells); len(reasons) != 1 || !strings.Contains(reasons[0], cells[1].String()) {
		t.Errorf("%q", reasons)
	}
}

func TestCells_TheLoadLastsAsLongAsTheyTake(t *testing.T) {
	_, control, safe := withCells()
	if got := safe.Experiment.Lasts(time.Second); got < 18*400*time.Millisecond+3*pauseOf(time.Second) {
		t.Errorf("%v", got)
	}
	if got := control.Experiment.Lasts(time.Second); got != least {
		t.Errorf("%v", got)
	}
}
