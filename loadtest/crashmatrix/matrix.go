// SPDX-License-Identifier: MIT

package crashmatrix

import (
	"context"
	"fmt"
	"time"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/nemesis"
)

// Matrix is the fault crash-matrix.
type Matrix struct {
	Trial *loadtest.Trial
	Links map[string]*nemesis.Link // from the victim to its stores, by store
}

// Failpoints returns the arguments with which the victim of a scenario is started. For each cell, the
// request with the cell's key stops the victim at the cell's step.
func Failpoints(s loadtest.Scenario) (args []string) {
	for n, c := range s.CellsOf() {
		args = append(args, "--failpoint", fmt.Sprintf("%s/%s=stop:%s", s.Flow.Name, c.Step, loadtest.CellKey(n)))
	}
	return args
}

// Inject runs the cells in sequence, and takes as long as they need.
func (m Matrix) Inject(ctx context.Context, _ time.Duration) (events []fault.Event, err error) {
	t := m.Trial
	defer t.Hold()()
	inspection, err := t.Scenario.Flow.Cells.Inspect(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	defer inspection.Close()
	for n, cell := range t.Scenario.CellsOf() {
		one := &trying{Matrix: m, Cell: cell, inspection: inspection, requests: t.Scenario.Flow.Cells.Requests(t.Plan, n, cell)}
		began := time.Now()
		if err := one.try(ctx); err != nil {
			return events, fmt.Errorf("%v: %w", cell, err)
		}
		one.Seconds = time.Since(began).Seconds()
		t.Cells = append(t.Cells, one.Cell)
		if one.event.What != "" {
			events = append(events, one.event)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return events, ctx.Err()
}
