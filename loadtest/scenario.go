package loadtest

import (
	"slices"
	"time"
)

// Scenario is a strategy under a fault, and what must come of it.
type Scenario struct {
	Flow     *Flow
	Strategy string
	Fault    Fault
	Expect   Verdict
	Breaks   []string // a control: at least these must be broken
	Keeps    []string // a control: and these must hold all the same

	// Patience is how long after the load a key may stay undecided, where its end
	// says nothing: a control that never decides some of them. 0: the proof's.
	Patience time.Duration
}

// Name is unique in a matrix.
func (s Scenario) Name() string { return scenarioName(s.Flow.Name, s.Strategy, s.Fault) }

func scenarioName(flow, strategy string, fault Fault) string {
	return flow + "/" + strategy + "/" + string(fault)
}

// Fault names what is done while the load runs. Faults of the stores are named by
// the flows that use them.
type Fault string

// The faults of every flow's replicas.
const (
	NoFault Fault = "none"
	Crash   Fault = "crash"
	Pause   Fault = "pause"
)

// Strategy is what has to be known of one to put it into the matrix.
type Strategy struct {
	Name   string
	Safe   bool
	Stores []string
}

// Only keeps the scenarios of the named flow, strategy and fault; an empty name is any.
func Only(matrix []Scenario, flow, strategy, fault string) []Scenario {
	return slices.DeleteFunc(slices.Clone(matrix), func(s Scenario) bool {
		return flow != "" && s.Flow.Name != flow || strategy != "" && s.Strategy != strategy || fault != "" && string(s.Fault) != fault
	})
}

// Quick is the part of a matrix that shows the point in two or three minutes: what
// the flows chose, and every safe strategy once, under the load that catches the controls.
func Quick(matrix []Scenario) []Scenario {
	return slices.DeleteFunc(slices.Clone(matrix), func(s Scenario) bool { return !s.Flow.Quick(s) && !s.Flow.calm(s) })
}
