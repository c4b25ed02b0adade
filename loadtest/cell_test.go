// SPDX-License-Identifier: MIT

package loadtest

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// withCells returns a flow with a crash matrix of two steps.
func withCells() *Flow {
	return &Flow{Name: "f", Cells: &Cells{
		Strategy: "right", Steps: []string{"before", "after"}, Commits: "after",
		Stores: []CellStore{{Name: "redis", Last: "after"}, {Name: "postgres", Last: "before"}},
	}}
}

// allAre returns the cells of a scenario, all with one verdict.
func allAre(s Scenario, verdict CellVerdict) []Cell {
	cells := s.CellsOf()
	for i := range cells {
		cells[i].Verdict = verdict
	}
	return cells
}

func TestCells_AreEachStepUnderEachFault(t *testing.T) {
	f := withCells()
	seen := map[string]bool{}
	for _, c := range f.Safe("right", CrashMatrix).CellsOf() {
		seen[c.String()] = true
	}
	if len(seen) != 2*(2+2*2) || !seen["before × cut from postgres, answers lost"] || !seen["after × killed"] {
		t.Errorf("%v", seen)
	}
	if cells := f.Safe("right", Crash).CellsOf(); cells != nil {
		t.Errorf("another fault has cells: %v", cells)
	}
	if f.Cells.Committed("before") || !f.Cells.Committed("after") {
		t.Error("what is stored at which step")
	}
	if !f.Cells.Uses("redis", "after") || f.Cells.Uses("postgres", "after") || !f.Cells.Uses("postgres", "before") {
		t.Error("which store is used behind which step")
	}
}

func TestCells_TheMatrixOfScenariosHasTheDefaultStrategyAndTheControls(t *testing.T) {
	f := withCells()
	f.Faults = []FaultSpec{{Fault: NoFault}, CrashMatrixSpec(5)}
	f.Controls = []Scenario{f.CellControl("wrong", []Cell{{Step: "before", Fault: CellFault{Kind: CellPaused}}}, nil, "S1")}
	var names []string
	for _, s := range f.Matrix([]Strategy{{Name: "right", Safe: true}, {Name: "other", Safe: true}}) {
		if s.Fault == CrashMatrix {
			names = append(names, s.Name())
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"f/right/crash-matrix", "f/wrong/crash-matrix"}) {
		t.Errorf("%v", names)
	}
	if n := len(f.Controls[0].CellsOf()); n != 1 {
		t.Errorf("the control tries %d cells", n)
	}
}

func TestJudge_ACellWithoutAHitFailsTheRun(t *testing.T) {
	s := withCells().Safe("right", CrashMatrix)
	cells := allAre(s, CellOK)
	if reasons := s.unshown(cells); len(reasons) != 0 {
		t.Fatalf("%q", reasons)
	}
	cells[3].Verdict, cells[3].Why = CellEmpty, []string{"the request did not reach the step"}
	reasons := s.unshown(cells)
	if verdict, met := Judge(s, nil, reasons); verdict != Inconclusive || met || len(reasons) != 1 || !strings.Contains(reasons[0], cells[3].String()) {
		t.Errorf("%s %t: %q", verdict, met, reasons)
	}
	if reasons := s.unshown(cells[:2]); len(reasons) != 1 || !strings.Contains(reasons[0], "2 of 12") {
		t.Errorf("cells that were not tried: %q", reasons)
	}
}

func TestJudge_AViolatedCellBreaksAnInvariant(t *testing.T) {
	s := withCells().Safe("right", CrashMatrix)
	cells := allAre(s, CellOK)
	if found := violatedCells(cells); len(found) != 0 {
		t.Errorf("%q", found)
	}
	cells[0].Verdict, cells[0].Why = CellViolated, []string{"S1: product"}
	found := violatedCells(cells)
	if len(found) != 1 || !strings.Contains(found[0], "S1: product") {
		t.Errorf("%q", found)
	}
	if verdict, met := Judge(s, map[string]int64{CellInvariant.Code: int64(len(found))}, nil); verdict != Violated || met {
		t.Errorf("%s %t", verdict, met)
	}
}

func TestJudge_EachCellOfAControlMustBeViolated(t *testing.T) {
	f := withCells()
	s := f.CellControl("wrong", f.Cells.all()[:2], nil, "S1")
	cells := allAre(s, CellViolated)
	if reasons := s.unshown(cells); len(reasons) != 0 {
		t.Errorf("%q", reasons)
	}
	cells[1].Verdict = CellOK
	if reasons := s.unshown(cells); len(reasons) != 1 || !strings.Contains(reasons[0], cells[1].String()) {
		t.Errorf("%q", reasons)
	}
	if !slices.Contains(s.Breaks, CellInvariant.Code) || !slices.Contains(s.Breaks, "S1") {
		t.Errorf("%q", s.Breaks)
	}
}

func TestCells_TheLoadLastsAsLongAsTheyTake(t *testing.T) {
	s := withCells().Safe("right", CrashMatrix)
	if got, want := s.cellsTime(time.Second), 12*cellTime+2*CellPause(time.Second); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	s.Cells = s.CellsOf()[:1]
	if got := s.cellsTime(time.Second); got != cellsLeast {
		t.Errorf("%v", got)
	}
}
