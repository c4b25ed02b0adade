package linear

// Partition is a part of a history that has nothing to do with the rest, as a model sees it.
type Partition struct {
	Object string      // what it is about: a product, the accounts of a group
	Start  State       // before the first step
	Steps  []Step      // in any order
	Parts  []Partition // narrower views: each is legal if the partition is
}

// State is that of a model. It never changes: a step makes another one.
type State interface {
	Equal(State) bool
	String() string
}

// Step is an operation as the model sees it.
type Step struct {
	Of     *Operation
	Call   int64
	Return int64 // Forever: it has no end
	Order  int64 // the place that the database gives it among the writes; 0: none
	Reads  bool  // it leaves every state as it is
	Text   string
	// Next is the state after it, if it gives the answer of the history in this one.
	Next func(State) (State, bool)
}

// NewStep is the step of an operation, without its Next.
func NewStep(o *Operation, text string) Step {
	return Step{Of: o, Call: o.Call, Return: o.End(), Order: o.Order, Reads: o.Reads, Text: text}
}

// Does gives the step its effect: none where the operation only may have happened, and
// possible is not met.
func (s Step) Does(next func(State) (State, bool)) Step {
	if s.Next = next; s.Of.Fate() == Maybe {
		return s.maybe()
	}
	return s
}

// maybe is the step of an operation that happened or did not. It has no end, so that it can
// come behind all others, where it changes no answer.
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

// Checks makes the step one that changes nothing, and is legal in some states.
func (s Step) Checks(holds func(State) bool) Step {
	s.Reads, s.Order = true, 0
	s.Next = func(state State) (State, bool) { return state, holds(state) }
	return s
}

// Never is the step of an answer that no state can give.
func (s Step) Never() Step {
	s.Next = func(state State) (State, bool) { return state, false }
	return s
}

// until is the beginning of a partition: what was called by a moment. What had not returned
// by then may have happened, and what it was answered is not known yet.
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
