package loadtest

import (
	"slices"
	"time"
)

// The flows.
const (
	inventoryFlow = "inventory"
	transferFlow  = "transfer"
	walletFlow    = "wallet"
)

// Scenario is a strategy under a fault, and what must come of it.
type Scenario struct {
	Flow     string
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
func (s Scenario) Name() string { return s.Flow + "/" + s.Strategy + "/" + string(s.Fault) }

// Fault names what is done while the load runs.
type Fault string

// The faults.
const (
	NoFault Fault = "none"
	Crash   Fault = "crash"

	// Of inventory's stores.
	LockLost  Fault = "lock-lost"
	RedisDown Fault = "redis-down"

	// Of transfer's stores.
	LateWrite    Fault = "late-write"
	Pause        Fault = "pause"
	LeaseRevoked Fault = "lease-revoked"
	LeaderKill   Fault = "leader-kill"
	NoQuorum     Fault = "no-quorum"
	PGRestart    Fault = "pg-restart"
	CommitCut    Fault = "commit-cut"

	// Of wallet's store. (Pause and Crash are among its faults too.)
	StepDown      Fault = "step-down"
	PrimaryPause  Fault = "primary-pause"
	PrimaryKill   Fault = "primary-kill"
	CommitUnknown Fault = "commit-unknown"
)

// order puts the faults from the harmless to the rest, so that a control stands
// beside those that must do better under the same.
func (f Fault) order() int {
	return slices.Index([]Fault{
		NoFault, LockLost, RedisDown, LateWrite, Pause, LeaseRevoked, LeaderKill, NoQuorum, PGRestart, CommitCut,
		StepDown, PrimaryPause, PrimaryKill, CommitUnknown, Crash,
	}, f)
}

// Strategy is what has to be known of one to put it into the matrix.
type Strategy struct {
	Name   string
	Safe   bool
	Stores []string
}

// control is a scenario that must be violated.
func control(flow, strategy string, fault Fault, keeps []string, breaks ...string) Scenario {
	return Scenario{Flow: flow, Strategy: strategy, Fault: fault, Expect: Violated, Breaks: breaks, Keeps: keeps}
}

func safe(flow, strategy string, fault Fault) Scenario {
	return Scenario{Flow: flow, Strategy: strategy, Fault: fault, Expect: Safe}
}

// Only keeps the scenarios of the named flow, strategy and fault; an empty name is any.
func Only(matrix []Scenario, flow, strategy, fault string) []Scenario {
	return slices.DeleteFunc(slices.Clone(matrix), func(s Scenario) bool {
		return flow != "" && s.Flow != flow || strategy != "" && s.Strategy != strategy || fault != "" && string(s.Fault) != fault
	})
}
