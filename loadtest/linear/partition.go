// SPDX-License-Identifier: MIT

package linear

// Partition is a part of a history that is independent of the rest, as a model sees it.
type Partition struct {
	Object string      // a product, or the accounts of a group
	Start  State       // before the first step
	Steps  []Step      // in any order
	Parts  []Partition // narrower views: each is legal if the partition is
	// Amount returns an amount of a state that writes change by Step.Adds; nil: there is none. With it the search sees that
	// it is past the state that a read shows.
	Amount func(State) int64
}

// State is a state of a model. It is immutable: a step returns another state.
type State interface {
	Equal(State) bool
	String() string
}

// Step is an operation as the model sees it.
type Step struct {
	Of     *Operation
	Call   int64
	Return int64 // Forever: it has no end
	Order  int64 // its place among the writes of the database; 0: none
	Reads  bool  // it changes no state
	Text   string
	Adds   int64  // a write: what it adds to the Amount of the partition, if it happens
	Shows  *int64 // a read: the Amount that fits; nil: its answer does not say it
	// Next returns the state after the step, and whether the step gives the answer of the history in
	// the state before.
	Next func(State) (State, bool)
}

// NewStep returns the step of an operation, without its Next.
func NewStep(o *Operation, text string) Step {
	return Step{Of: o, Call: o.Call, Return: o.End(), Order: o.Order, Reads: o.Reads, Text: text}
}

// Does sets the effect of the step. If the operation may not have happened, the step may have no effect
// too, in states that do not allow it.
func (s Step) Does(next func(State) (State, bool)) Step {
	if s.Next = next; s.Of.Fate() == Maybe {
		return s.maybe()
	}
	return s
}

// maybe returns the step of an operation that happened or did not. It has no end: it can come after all
// other steps, where it changes no answer.
func (s Step) maybe() Step {
	next := s.Next
	s.Return, s.Order = Forever, 0
	s.Next = func(state State) (State, bool) {
		if after, ok := next(state); ok {
			return after, true
		}
		return state, true
	}
	return s
}

// Checks makes the step one that changes nothing, and is legal in the states that hold.
func (s Step) Checks(holds func(State) bool) Step {
	s.Reads, s.Order = true, 0
	s.Next = func(state State) (State, bool) { return state, holds(state) }
	return s
}

// Never makes the step one whose answer is legal in no state.
func (s Step) Never() Step {
	s.Next = func(state State) (State, bool) { return state, false }
	return s
}

// until returns the prefix of a partition: the steps that were called until a time. A write that had not
// returned by then may have happened, and its answer is not known yet; such a read is left out.
func (p Partition) until(moment int64) Partition {
	var steps []Step
	for _, s := range p.Steps {
		switch {
		case s.Call > moment:
		case s.Return <= moment:
			steps = append(steps, s)
		case !s.Reads:
			steps = append(steps, s.maybe())
		}
	}
	p.Steps, p.Parts = steps, nil
	return p
}
