package linear

import (
	"cmp"
	"context"
	"io"
	"slices"
	"sync/atomic"

	"github.com/anishathalye/porcupine"
)

// Verdict is what a check says of a partition.
type Verdict string

// The verdicts.
const (
	Legal     Verdict = "legal"
	Illegal   Verdict = "illegal"
	Undecided Verdict = "undecided" // its time or the memory ran out
)

// search lets porcupine try all orders until ctx ends.
func (p Partition) search(ctx context.Context) Verdict {
	model, stopped := p.model(ctx)
	switch legal := porcupine.CheckEvents(model, p.events()); {
	case legal: // each step was seen to be legal
		return Legal
	case stopped():
		return Undecided
	default:
		return Illegal
	}
}

// model hands the steps over to porcupine. When ctx ends no step is legal any more, so that a
// search comes to its end at once; what it says then counts for nothing.
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

// events are the calls and returns in the order of time. Calls without a return between them
// may stand in any order, and porcupine tries them in this one: reads first, which change
// nothing, then the writes as the database orders them, then by their returns.
func (p Partition) events() []porcupine.Event {
	type edge struct {
		at   int64
		kind porcupine.EventKind
		step int
	}
	edges := make([]edge, 0, 2*len(p.Steps))
	for i, s := range p.Steps {
		edges = append(edges, edge{s.Call, porcupine.CallEvent, i}, edge{s.Return, porcupine.ReturnEvent, i})
	}
	slices.SortStableFunc(edges, func(a, b edge) int {
		if a.at != b.at {
			return cmp.Compare(a.at, b.at)
		}
		return boolCompare(a.kind == porcupine.ReturnEvent, b.kind == porcupine.ReturnEvent) // the bounds belong to the interval
	})
	events := make([]porcupine.Event, len(edges))
	for from := 0; from < len(edges); {
		to := from + 1
		for ; edges[from].kind == porcupine.CallEvent && to < len(edges) && edges[to].kind == porcupine.CallEvent; to++ {
		}
		slices.SortStableFunc(edges[from:to], func(a, b edge) int { return p.Steps[a.step].before(p.Steps[b.step]) })
		from = to
	}
	for i, e := range edges {
		events[i] = porcupine.Event{Kind: e.kind, Id: e.step, Value: e.step}
	}
	return events
}

// before compares two steps that could come next.
func (s Step) before(t Step) int {
	if s.Reads != t.Reads {
		return boolCompare(t.Reads, s.Reads)
	}
	if placed, other := s.Order != 0, t.Order != 0; placed != other {
		return boolCompare(other, placed)
	}
	return cmp.Or(cmp.Compare(s.Order, t.Order), cmp.Compare(s.Return, t.Return))
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// draw writes porcupine's page of a partition: its operations, and the longest orders that
// are legal.
func (p Partition) draw(ctx context.Context, w io.Writer) error {
	model, stopped := p.model(ctx)
	_, info := porcupine.CheckOperationsVerbose(model, p.lanes(), 0)
	if stopped() {
		return context.Cause(ctx)
	}
	model, _ = p.model(context.Background()) // the orders are done again to show their states
	return porcupine.Visualize(model, info, w)
}

// lanes are the operations, each on the first line where it is alone. (A client sends
// several at once, which porcupine would draw over each other.)
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
