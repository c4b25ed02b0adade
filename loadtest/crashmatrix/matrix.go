// SPDX-License-Identifier: MIT

package crashmatrix

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// Name is the name of the fault.
const Name loadtest.Fault = "crash-matrix"

// Cells are what a flow provides.
type Cells struct {
	Strategy string   // the strategy whose cells are all tried
	Steps    []string // in order
	Locks    string   // the lock service of the strategy: a lock is released after the commit; "": it has none
	Database string   // to which a request sends nothing more after the commit
	Health   string   // the field of /readyz that is "ok" when a replica reaches all stores
	Setup    loadtest.Setup

	Supply  func(p *traffic.Plan, cells int) // adds objects for each cell to a plan
	Request func(traffic.Plan, Request) *traffic.Intent
	Query   func(context.Context, *loadtest.Trial, invariant.Check) ([]string, error)
	Checks  []invariant.Check // that need only the tables
	Effects invariant.Check   // finds the effects of the key KEY
}

// Steps of each flow. A control is paused between its read and its write.
const (
	afterGuard  = "after-guard"
	afterCommit = "after-commit"
)

// Request identifies a request of a cell.
type Request struct {
	Cell int    // its number
	Step string // of the cell
	Role Role
	Try  int // of a WarmUp, from 0
}

// Role is what a request is for.
type Role int

// The roles of the requests of a cell, which are all for its objects.
const (
	WarmUp Role = iota // sent to the victim, one at a time, until one succeeds: the victim works
	Hit                // the fault must hit it at the step
	Rival              // sent to another replica while the victim is stopped
	Last               // sent to another replica when the fault is over
)

// Key is the key of the request.
func (r Request) Key() string {
	names := [...]string{WarmUp: fmt.Sprintf("-warm-%d", r.Try), Rival: "-rival", Last: "-last"}
	return fmt.Sprintf("cell-%03d%s", r.Cell, names[r.Role])
}

// QuerySQL queries PostgreSQL.
func QuerySQL(ctx context.Context, t *loadtest.Trial, check invariant.Check) ([]string, error) {
	conn, err := pgx.Connect(ctx, t.Postgres)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return invariant.SQL(conn)(ctx, check)
}

// Add adds the fault to a flow, with two scenarios: all cells of one strategy, and a control with one cell.
func (c *Cells) Add(f *loadtest.Flow) {
	setup := c.Setup
	setup.Links, setup.Inject = true, func(servers loadtest.Servers, t *loadtest.Trial) (fault.Fault, error) {
		return Injection{Trial: t, Links: servers.Links()}, nil
	}
	f.Faults = append(slices.Clip(f.Faults), loadtest.FaultSpec{
		Fault: Name, Setup: setup, Apart: true, Outage: true, Slower: 5,
		Needs: []loadtest.Need{{Evidence: "cells_hit", Why: "no cell of the crash matrix was hit"}},
	})
	f.Invariants = append(slices.Clip(f.Invariants), Invariant)
	evidence := map[string]string{"cells_hit": "cells of the crash matrix in which a request was hit at its step"}
	maps.Copy(evidence, f.Evidence)
	f.Evidence = evidence
	control := f.Controls[0]
	control.Fault, control.Breaks = Name, append(slices.Clip(control.Breaks), Invariant.Code)
	control.Experiment = Matrix{c, []Cell{{Step: afterGuard, Fault: Fault{Kind: Paused}}}}
	safe := f.Safe(c.Strategy, Name)
	safe.Experiment = Matrix{c, c.all()}
	f.Controls = append(f.Controls, control, safe)
}

// Invariant is what violated cells break.
var Invariant = invariant.Invariant{
	Code: "I-CELL", Name: "crash-matrix",
	Means: "a request that a fault hit at a step is decided when its client retries it, and has its effect once or not at all, as answered; its objects break no invariant",
}

// all returns the cells of the whole matrix, step by step: the pauses, which take long, do not follow each other.
func (c *Cells) all() (cells []Cell) {
	for _, step := range c.Steps {
		cells = append(cells, Cell{Step: step, Fault: Fault{Kind: Killed}}, Cell{Step: step, Fault: Fault{Kind: Paused}})
		for _, store := range []string{c.Locks, c.Database} {
			if store != "" {
				cells = append(cells, Cell{Step: step, Fault: Fault{Cut, store, Requests}}, Cell{Step: step, Fault: Fault{Cut, store, Answers}})
			}
		}
	}
	return cells
}

// uses reports whether a request still sends something to a store after a step.
func (c *Cells) uses(store, step string) bool {
	return c.place(step) < c.place(afterCommit) || store == c.Locks && step == afterCommit
}

func (c *Cells) place(step string) int { return slices.Index(c.Steps, step) }

// Matrix is the experiment of a scenario: the cells that it tries.
type Matrix struct {
	*Cells
	Tried []Cell
}

// Within returns the matrix without the cells of other stores.
func (m Matrix) Within(stores []string) Matrix {
	m.Tried = slices.DeleteFunc(slices.Clone(m.Tried), func(c Cell) bool {
		return c.Fault.Store != "" && !slices.Contains(stores, c.Fault.Store)
	})
	return m
}

// Supply adds the objects of all cells.
func (m Matrix) Supply(p *traffic.Plan) { m.Cells.Supply(p, len(m.Tried)) }

// least is the shortest load.
const least = 6 * time.Second

// Lasts estimates how long the cells take: each some time of its own, and one in five a pause.
func (m Matrix) Lasts(ttl time.Duration) time.Duration {
	return max(least, time.Duration(len(m.Tried))*(400*time.Millisecond+pauseOf(ttl)/5))
}

// Judge lists the cells that are violated, and why others show nothing: a cell was not tried, a cell is empty, or a cell
// of a control is not violated.
func (m Matrix) Judge(expect loadtest.Verdict, tried any) (broken invariant.Findings, unshown []string) {
	broken = invariant.Findings{}
	broken.Add(Invariant.Code)
	cells, _ := tried.(Results)
	if len(cells) < len(m.Tried) {
		unshown = append(unshown, fmt.Sprintf("%d of %d cells of the crash matrix were tried", len(cells), len(m.Tried)))
	}
	for _, c := range cells {
		switch {
		case c.Verdict == Violated:
			broken.Add(Invariant.Code, c.note())
		case c.Verdict == Empty:
			unshown = append(unshown, c.note())
		case c.Verdict == OK && expect == loadtest.Violated:
			unshown = append(unshown, fmt.Sprintf("%v must be violated, and is ok", c))
		}
	}
	return broken, unshown
}
