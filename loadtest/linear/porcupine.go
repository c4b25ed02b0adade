// SPDX-License-Identifier: MIT

package linear

import (
	"cmp"
	"context"
	"io"
	"slices"
	"sync/atomic"

	"github.com/anishathalye/porcupine"
)

// porcupine returns the verdict of porcupine; Undecided if ctx ends before.
func (p Partition) porcupine(ctx context.Context) Verdict {
	model, stopped := p.model(ctx)
	switch legal := porcupine.CheckOperations(model, p.lanes()); {
	case legal: // valid also if ctx has ended: every step was legal
		return Legal
	case stopped():
		return Undecided
	default:
		return Illegal
	}
}

// model describes the steps to porcupine. When ctx has ended no step is legal, so a search ends at once;
// its result is then not valid.
func (p Partition) model(ctx context.Context) (model porcupine.Model, stopped func() bool) {
	var stop atomic.Bool
	release := context.AfterFunc(ctx, func() { stop.Store(true) })
	return porcupine.Model{
		Init: func() any { return p.Start },
		Step: func(state, input, _ any) (bool, any) {
			if stop.Load() {
				return false, state
			}
			next, ok := p.Steps[input.(int)].Next(state.(State))
			return ok, next
		},
		Equal:             func(a, b any) bool { return a.(State).Equal(b.(State)) },
		DescribeOperation: func(input, _ any) string { return p.Steps[input.(int)].Text },
		DescribeState:     func(state any) string { return state.(State).String() },
	}, func() bool { release(); return stop.Load() }
}

// draw writes porcupine's page for a partition, with its operations and the longest legal orders.
func (p Partition) draw(ctx context.Context, w io.Writer) error {
	model, stopped := p.model(ctx)
	_, info := porcupine.CheckOperationsVerbose(model, p.lanes(), 0)
	if stopped() {
		return context.Cause(ctx)
	}
	model, _ = p.model(context.Background()) // Visualize applies the orders again to show their states
	return porcupine.Visualize(model, info, w)
}

// lanes returns the operations, each on the first line where it overlaps no other. (A client sends several
// at once, which porcupine would draw over each other.)
func (p Partition) lanes() (operations []porcupine.Operation) {
	steps := make([]int, len(p.Steps))
	last := int64(0)
	for i, s := range p.Steps {
		steps[i] = i
		if last = max(last, s.Call); s.Return != Forever {
			last = max(last, s.Return)
		}
	}
	slices.SortStableFunc(steps, func(a, b int) int { return cmp.Compare(p.Steps[a].Call, p.Steps[b].Call) })
	var ends []int64
	for _, i := range steps {
		s := p.Steps[i]
		lane := slices.IndexFunc(ends, func(end int64) bool { return end < s.Call })
		if lane < 0 {
			lane, ends = len(ends), append(ends, 0)
		}
		ends[lane] = min(s.Return, last+1)
		operations = append(operations, porcupine.Operation{ClientId: lane, Input: i, Call: s.Call, Return: ends[lane]})
	}
	return operations
}
