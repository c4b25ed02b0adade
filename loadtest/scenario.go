package loadtest

import (
	"cmp"
	"slices"
)

// The flows.
const (
	inventoryFlow = "inventory"
	transferFlow  = "transfer"
)

// Scenario is a strategy under a fault, and what must come of it.
type Scenario struct {
	Flow     string
	Strategy string
	Fault    Fault
	Expect   Verdict
	Breaks   []string // a control: at least these must be broken
	Keeps    []string // a control: and these must hold all the same
}

// Name is unique in a matrix.
func (s Scenario) Name() string { return s.Flow + "/" + s.Strategy + "/" + string(s.Fault) }

// Fault names what is done while the load runs.
type Fault string

// The faults of the inventory flow.
const (
	NoFault   Fault = "none"
	Crash     Fault = "crash"
	LockLost  Fault = "lock-lost"
	RedisDown Fault = "redis-down"
)

// Strategy is what has to be known of one to put it into the matrix.
type Strategy struct {
	Name   string
	Safe   bool
	Stores []string
}

// storeFaults are what can be done to a store. Every strategy can crash.
var storeFaults = map[string][]Fault{
	"redis": {LockLost, RedisDown},
}

// controls are the scenarios that must be violated, or that show that a
// violation comes from its fault: redis-only holds as long as nobody takes its
// lock away. What they must keep is what their mistake does not touch.
var controls = []Scenario{
	control("naive", NoFault, "S1"),
	safe("redis-only", NoFault),
	control("redis-only", LockLost, "S1"),
}

func control(strategy string, fault Fault, breaks ...string) Scenario {
	return Scenario{
		Flow: "inventory", Strategy: strategy, Fault: fault, Expect: Violated,
		Breaks: breaks, Keeps: []string{"I-ACK", "I-REJ", "I-ONCE", "I-WHOLE"},
	}
}

func safe(strategy string, fault Fault) Scenario {
	return Scenario{Flow: "inventory", Strategy: strategy, Fault: fault, Expect: Safe}
}

// Matrix is every control, then every safe strategy under no fault, under a
// crash, and under the faults of each store that it uses; sorted by fault.
func Matrix(strategies []Strategy) []Scenario {
	matrix := slices.Clone(controls)
	for _, s := range strategies {
		if !s.Safe {
			continue
		}
		matrix = append(matrix, safe(s.Name, NoFault), safe(s.Name, Crash))
		for _, store := range s.Stores {
			for _, fault := range storeFaults[store] {
				matrix = append(matrix, safe(s.Name, fault))
			}
		}
	}
	slices.SortStableFunc(matrix, func(a, b Scenario) int { return cmp.Compare(a.Fault.order(), b.Fault.order()) })
	return matrix
}

// order puts the faults from the harmless to the rest, so that a control stands
// beside those that must do better under the same.
func (f Fault) order() int { return slices.Index([]Fault{NoFault, LockLost, RedisDown, Crash}, f) }

// Quick is the part of the matrix that shows the point in a minute: the control
// and the real thing under the same load, the lock taken away from both, and
// what else the real thing must survive.
func Quick(matrix []Scenario) []Scenario {
	return slices.DeleteFunc(slices.Clone(matrix), func(s Scenario) bool {
		quick := s.Strategy == "redis+row" ||
			s.Strategy == "naive" ||
			s.Strategy == "redis-only" && s.Fault == LockLost
		return !quick
	})
}

// Only keeps the scenarios of the named flow, strategy and fault; an empty name is any.
func Only(matrix []Scenario, flow, strategy, fault string) []Scenario {
	return slices.DeleteFunc(slices.Clone(matrix), func(s Scenario) bool {
		return flow != "" && s.Flow != flow || strategy != "" && s.Strategy != strategy || fault != "" && string(s.Fault) != fault
	})
}
