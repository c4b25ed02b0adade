package crashmatrix

import (
	"context"
	"fmt"
	"time"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/nemesis"
)

// Matrix is the fault of a scenario.
type Matrix struct {
	Trial *loadtest.Trial
	Links map[string]*nemesis.Link // of the victim, by store
}

// Failpoints are the arguments with which the victim of a scenario is started: it stops at the step of each
// cell, at the request that has the cell's key.
func Failpoints(s loadtest.Scenario) (args []string) {
	for n, c := range s.CellsOf() {
		args = append(args, "--failpoint", fmt.Sprintf("%s/%s=stop:%s", s.Flow.Name, c.Step, loadtest.CellKey(n)))
	}
	return args
}

// Inject tries the cells one after the other, for as long as they take.
func (m Matrix) Inject(ctx context.Context, _ time.Duration) (events []fault.Event, err error) {
	t := m.Trial
	defer t.Hold()()
	look, err := t.Scenario.Flow.Cells.Inspect(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	defer look.Close()
	for n, cell := range t.Scenario.CellsOf() {
		one := &trying{Matrix: m, Cell: cell, look: look, requests: t.Scenario.Flow.Cells.Requests(t.Plan, n, cell)}
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
