// SPDX-License-Identifier: MIT

package loadtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/locking/invariant"
)

// CrashMatrix injects each fault of a replica at each step of a request, one at a time. A step under a
// fault is a cell of the matrix. Package crashmatrix runs the cells. The matrix of scenarios has one
// CrashMatrix for each flow's chosen strategy, and those of its controls.
const CrashMatrix Fault = "crash-matrix"

// Cells are what a flow provides for CrashMatrix.
type Cells struct {
	Strategy string      // the strategy whose cells are all tried
	Steps    []string    // in order
	Commits  string      // the first of these steps after the commit
	Stores   []CellStore // from which a replica is cut off
	Health   string      // the field of /readyz that is "ok" when a replica reaches all stores

	// Supply adds objects for each of n cells to a plan. Requests returns the requests of cell n for
	// its objects.
	Supply   func(p *Plan, n int)
	Requests func(p Plan, n int, at Cell) CellRequests
	// Inspect opens an Inspection, which works while there is load.
	Inspect func(context.Context, *Trial) (*Inspection, error)
}

// CellStore is a store of a strategy.
type CellStore struct {
	Name string
	Last string // the last step after which a request still sends something to the store
}

// CellRequests are the requests of a cell. Each names itself: see CellKey.
type CellRequests struct {
	Warm   []*Intent // sent to the replica first, one at a time, until one succeeds: the replica works
	Hit    *Intent   // the request that the fault must hit at the step
	Rivals []*Intent // for the same objects, sent to the other replicas; the last one when the fault is over
}

// Inspection finds broken invariants in the database, and counts the effects of a key.
type Inspection struct {
	Checks  []invariant.Check
	Query   func(context.Context, invariant.Check) ([]string, error)
	Effects func(ctx context.Context, client [16]byte, key string) (int64, error)
	Close   func()
}

// InspectSQL inspects PostgreSQL by checks that need only the tables. effects is a query that counts the effects of a
// client ($1) and a key ($2).
func InspectSQL(checks []invariant.Check, effects string) func(context.Context, *Trial) (*Inspection, error) {
	return func(ctx context.Context, t *Trial) (*Inspection, error) {
		conn, err := pgx.Connect(ctx, t.Postgres)
		return &Inspection{
			Checks: checks,
			Query:  invariant.SQL(conn),
			Effects: func(ctx context.Context, client [16]byte, key string) (n int64, err error) {
				err = conn.QueryRow(ctx, effects, uuid.UUID(client), key).Scan(&n)
				return n, err
			},
			Close: func() { _ = conn.Close(context.WithoutCancel(ctx)) },
		}, err
	}
}

// CellKey is the key of the request of cell n with this name; without a name, of the request that is hit.
func CellKey(n int, name ...string) string {
	key := fmt.Sprintf("cell-%03d", n)
	for _, part := range name {
		key += "-" + part
	}
	return key
}

// Cell is a fault at a step, and its result.
type Cell struct {
	Step     string      `json:"step"`
	Fault    CellFault   `json:"fault"`
	Verdict  CellVerdict `json:"verdict,omitempty"`
	Why      []string    `json:"why,omitempty"`      // why it is empty or violated
	Evidence []string    `json:"evidence,omitempty"` // that a request was hit at the step
	Seconds  float64     `json:"seconds,omitempty"`
}

// CellFault is a column of the matrix.
type CellFault struct {
	Kind  string `json:"kind"`            // CellKilled, CellPaused or CellCut
	Store string `json:"store,omitempty"` // of CellCut: the store
	Lost  string `json:"lost,omitempty"`  // of CellCut: requests or answers
}

// The kinds of CellFault.
const (
	CellKilled = "killed"
	CellPaused = "paused"
	CellCut    = "cut"
)

// What is lost under CellCut.
const (
	CellRequestsLost = "requests"
	CellAnswersLost  = "answers"
)

// String is the heading of the column.
func (f CellFault) String() string {
	switch f.Kind {
	case CellPaused:
		return "paused past the TTL"
	case CellCut:
		return "cut from " + f.Store + ", " + f.Lost + " lost"
	}
	return f.Kind
}

// String names the cell.
func (c Cell) String() string { return fmt.Sprintf("%s × %v", c.Step, c.Fault) }

// CellVerdict is the verdict of one cell.
type CellVerdict string

// The verdicts of cells.
const (
	CellOK       CellVerdict = "ok"
	CellViolated CellVerdict = "violated"
	CellEmpty    CellVerdict = "empty" // no evidence that a request was hit at the step
)

// Faults are the columns of the matrix.
func (c *Cells) Faults() []CellFault {
	faults := []CellFault{{Kind: CellKilled}, {Kind: CellPaused}}
	for _, s := range c.Stores {
		faults = append(faults, CellFault{CellCut, s.Name, CellRequestsLost}, CellFault{CellCut, s.Name, CellAnswersLost})
	}
	return faults
}

// all returns the cells of the whole matrix, step by step: the pauses, which take long, do not follow each
// other.
func (c *Cells) all() (cells []Cell) {
	for _, step := range c.Steps {
		for _, fault := range c.Faults() {
			cells = append(cells, Cell{Step: step, Fault: fault})
		}
	}
	return cells
}

// Committed reports whether the effect of a request is committed at a step.
func (c *Cells) Committed(step string) bool {
	return slices.Index(c.Steps, step) >= slices.Index(c.Steps, c.Commits)
}

// Uses reports whether a request still sends something to a store after a step.
func (c *Cells) Uses(store, step string) bool {
	return slices.ContainsFunc(c.Stores, func(s CellStore) bool {
		return s.Name == store && slices.Index(c.Steps, step) <= slices.Index(c.Steps, s.Last)
	})
}

// CellsOf are the cells that a scenario tries.
func (s Scenario) CellsOf() []Cell {
	switch {
	case s.Fault != CrashMatrix || s.Flow.Cells == nil:
		return nil
	case len(s.Cells) > 0:
		return slices.Clone(s.Cells)
	}
	return s.Flow.Cells.all()
}

// CellControl is a scenario with a few cells, each of which must be violated.
func (f *Flow) CellControl(strategy string, cells []Cell, keeps []string, breaks ...string) Scenario {
	s := f.Control(strategy, CrashMatrix, keeps, append(breaks, CellInvariant.Code)...)
	s.Cells = cells
	return s
}

// CellInvariant is the invariant that violated cells break.
var CellInvariant = invariant.Invariant{
	Code: "I-CELL", Name: "crash-matrix",
	Means: "a request that a fault hit at a step is decided when its client retries it, and has its effect once or not at all, as answered; its objects break no invariant",
}

// CrashMatrixSpec is the FaultSpec of CrashMatrix under a load of 1/slower of the usual rate.
func CrashMatrixSpec(slower int) FaultSpec {
	return FaultSpec{
		Fault: CrashMatrix, Apart: true, Outage: true, Slower: slower,
		Needs: []Need{{Evidence: "cells_hit", Why: "no cell of the crash matrix was hit"}},
	}
}

// cellTime is how long a cell takes, without a pause. cellsLeast is the shortest load.
const (
	cellTime   = 400 * time.Millisecond
	cellsLeast = 6 * time.Second
)

// cellsTime estimates how long the cells of a scenario take.
func (s Scenario) cellsTime(ttl time.Duration) (sum time.Duration) {
	for _, c := range s.CellsOf() {
		if sum += cellTime; c.Fault.Kind == CellPaused {
			sum += CellPause(ttl)
		}
	}
	return max(sum, cellsLeast)
}

// CellPause is how long a replica is paused at least.
func CellPause(ttl time.Duration) time.Duration { return ttl * 6 / 5 }

// violatedCells describes the cells that are violated.
func violatedCells(cells []Cell) (found []string) {
	for _, c := range cells {
		if c.Verdict == CellViolated {
			found = append(found, fmt.Sprintf("%v: %s", c, first(c.Why)))
		}
	}
	return found
}

// unshown lists why a scenario's cells are inconclusive: a cell was not tried, a cell is empty, or a cell
// of a control is not violated.
func (s Scenario) unshown(cells []Cell) (reasons []string) {
	if planned := len(s.CellsOf()); len(cells) < planned {
		reasons = append(reasons, fmt.Sprintf("%d of %d cells of the crash matrix were tried", len(cells), planned))
	}
	for _, c := range cells {
		switch {
		case c.Verdict == CellEmpty:
			reasons = append(reasons, fmt.Sprintf("%v is empty: %s", c, first(c.Why)))
		case s.Expect == Violated && c.Verdict == CellOK:
			reasons = append(reasons, fmt.Sprintf("%v must be violated, and is ok", c))
		}
	}
	return reasons
}

func first(list []string) string {
	if len(list) == 0 {
		return "no reason given"
	}
	return list[0]
}

// CellsSentence counts the cells by their verdicts; "" without any.
func (r Result) CellsSentence() string {
	if len(r.Cells) == 0 {
		return ""
	}
	counts, seconds := map[CellVerdict]int{}, 0.0
	for _, c := range r.Cells {
		counts[c.Verdict]++
		seconds += c.Seconds
	}
	return fmt.Sprintf("%s of the crash matrix in %.0f s: %d ok, %d violated, %d empty",
		counted(len(r.Cells), "cell"), seconds, counts[CellOK], counts[CellViolated], counts[CellEmpty])
}
