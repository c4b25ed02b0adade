// SPDX-License-Identifier: MIT

package loadtest

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"shop/loadtest/judge"
	"shop/loadtest/linear"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// Flow is what differs between the lessons under proof: what is sent, and what must be true of it.
// Replicas, load, faults, verdicts and reports are the same for all flows. A flow is a package below
// scenario/, and the program that runs the proof passes it to the engine.
type Flow struct {
	Name     string
	Number   string // the total damage in one number, beside the invariants: oversold, drift
	During   string // the invariant that is checked while the load runs
	Leftover string // the invariant that no lock is left behind; "": not checked

	// Plan draws the requests.
	Plan func(traffic.Load) traffic.Plan
	// Open opens what a trial needs beside PostgreSQL, and stores it in Trial.State. May be nil.
	Open func(context.Context, *Trial) (closing func(), err error)
	// Watch samples the stores until ctx ends.
	Watch func(context.Context, *Trial) ([]judge.Sample, error)
	// FollowUp returns what clients send after a success, with times counted from now. May be nil.
	FollowUp func(traffic.Record) []traffic.ScheduledRequest
	// Postcheck checks after the load, before the replicas are stopped, that everything still works.
	Postcheck func(context.Context, *Trial) invariant.Findings
	// Audit reads what really happened, when all replicas are gone.
	Audit func(context.Context, *Trial, []traffic.Record) (Audited, error)
	// Linear returns the independent partitions of a history, each with its model. May be nil:
	// histories are not checked.
	Linear func(linear.History) ([]linear.Partition, error)

	Answers
	Invariants  []invariant.Invariant      // beside those of every flow
	Undisturbed []string                   // those of Invariants that are judged only without a fault
	Evidence    map[string]string          // what its numbers count, beside those of every flow
	Counted     []string                   // the kinds of NAME_events_total in /metrics that are added to the evidence
	Locked      func(strategy string) bool // whether it takes a lock, which the lock service counts, for each key that has an effect; nil: none does
	LockCalls   int                        // the fewest calls of the lock service for such a lock; 0: 1
	Steps       []string                   // at which CrashSteps kills replicas; none: they are killed at any moment
	Batch       []string                   // at which CombinerKilled kills replicas
	Faults      []FaultSpec                // in the order in which they are tried, NoFault first
	Controls    []Scenario
	Timing
	Shown
}

// Answers are the answers that a flow's service may give.
type Answers struct {
	Refuses map[traffic.Action][]string // the problems with which a write that its client is allowed to make may be refused; nil: Audit checks it
	Stored  []string                    // the refusals that the service stores with the key: they are final, and the same byte for byte when the key is sent again
	Moments map[traffic.Action]string   // the field of a success that has the time of its effect
}

// Timing says which scenarios a proof runs for how long, and how fast.
type Timing struct {
	Quick        []string      // STRATEGY/FAULT: part of the short proof, besides each safe strategy without a fault
	Long         []string      // STRATEGY/FAULT: has a longer load in the whole proof, so that enough operations are checked
	Slower       int           // divides the rate of the load; 0: 1
	ControlGrace time.Duration // how long a control may leave a key undecided; 0: as long as the others
}

// FaultSpec is all that a flow defines for a fault.
type FaultSpec struct {
	Fault    Fault
	Setup    Setup
	Store    string        // strategies that use this store must survive the fault; "": all must
	Needs    []Need        // of every run under this fault
	Outage   bool          // the lock service is unavailable for a while, and keys may have an effect without a lock
	Least    int           // shortest load, in TTLs of a lock
	Stretch  int           // shortest load, in TTLs of a lock, at a lower rate: with no more requests than before
	Recovery time.Duration // how long servers need before anything can succeed
	CatchUp  time.Duration // how long after it first answers do not count in the shares of I-BUSY and I-ERROR; 0: a second
	Slower   int           // divides the rate of the load, so that keys that waited can be caught up with; 0: 1
	Apart    bool          // not part of the matrix: runs only on request
	Of       string        // the only strategy that has it; "": all
}

// At returns the spec with a load of its own: its length, its stretch, and what divides its rate.
func (u FaultSpec) At(least, stretch, slower int) FaultSpec {
	u.Least, u.Stretch, u.Slower = least, stretch, slower
	return u
}

// With returns the spec with another setup.
func (u FaultSpec) With(s Setup) FaultSpec {
	u.Setup = s
	return u
}

// spec returns what the flow defines for a fault; the zero FaultSpec for a fault of another flow.
func (f *Flow) spec(fault Fault) (known FaultSpec) {
	for _, u := range f.Faults {
		if u.Fault == fault {
			return u
		}
	}
	return known
}

// Audited is what a flow's audit found.
type Audited struct {
	Findings invariant.Findings
	Number   int64 // Flow.Number
	Evidence map[string]int64
	Story    *Story             // how a violation came about; nil: there is none
	Effects  []judge.Stored     // all effects in the database: a key that is missing has none; nil: they were not read
	Own      []linear.Operation // what the service did without a request
}

// Matrix returns every control, and every safe strategy under each fault of the stores that it uses. It is sorted by
// fault: a control stands beside the strategies that must be safe under the same fault.
func (f *Flow) Matrix(strategies []Strategy) []Scenario {
	matrix := slices.Clone(f.Controls)
	for _, s := range strategies {
		for _, u := range f.Faults {
			if s.Safe && !u.Apart && (u.Store == "" || slices.Contains(s.Stores, u.Store)) && (u.Of == "" || u.Of == s.Name) {
				matrix = append(matrix, f.Safe(s.Name, u.Fault))
			}
		}
	}
	place := func(s Scenario) int {
		return slices.IndexFunc(f.Faults, func(u FaultSpec) bool { return u.Fault == s.Fault })
	}
	slices.SortStableFunc(matrix, func(a, b Scenario) int { return cmp.Compare(place(a), place(b)) })
	return matrix
}

// Safe is a scenario that must be safe.
func (f *Flow) Safe(strategy string, fault Fault) Scenario {
	return Scenario{Flow: f, Strategy: strategy, Fault: fault, Expect: Safe}
}

// Control is a scenario that must be violated.
func (f *Flow) Control(strategy string, fault Fault, keeps []string, breaks ...string) Scenario {
	return Scenario{Flow: f, Strategy: strategy, Fault: fault, Expect: Violated, Breaks: breaks, Keeps: keeps, Grace: f.ControlGrace}
}

// NeedsPause is a control that is not always violated without the pause that widens the race.
func (s Scenario) NeedsPause() Scenario {
	s.Pause = true
	return s
}

// Widened reports whether the replicas have the pause: a control has none, unless it needs it.
func (s Scenario) Widened() bool { return s.Expect == Safe || s.Pause }

// quick reports whether a scenario is part of the short proof: it is listed in Flow.Quick, or it is a safe
// strategy without a fault that is not among the controls.
func (f *Flow) quick(s Scenario) bool {
	isControl := slices.ContainsFunc(f.Controls, func(c Scenario) bool { return c.Name() == s.Name() })
	return slices.Contains(f.Quick, s.Strategy+"/"+string(s.Fault)) || s.Expect == Safe && s.Fault == NoFault && !isControl
}

// Load returns the flow's load under a fault: slower or longer where the flow or the fault needs it.
func (f *Flow) Load(l traffic.Load, fault Fault, lockTTL time.Duration) traffic.Load {
	u := f.spec(fault)
	l.Rate = max(1, l.Rate/max(1, f.Slower)/max(1, u.Slower))
	if longer := time.Duration(u.Stretch) * lockTTL; longer > l.Duration {
		l.Rate = max(1, int(float64(l.Rate)*l.Duration.Seconds()/longer.Seconds()))
		l.Duration = longer
	}
	l.Duration = max(l.Duration, time.Duration(u.Least)*lockTTL)
	return l
}

// Bound is the time within which something must succeed after a fault.
func (f *Flow) Bound(fault Fault, lockTTL time.Duration) time.Duration {
	return judge.LiveBound(lockTTL) + f.spec(fault).Recovery
}

// Scenario is a strategy under a fault, and the verdict that is expected.
type Scenario struct {
	Flow     *Flow
	Strategy string
	Fault    Fault
	Expect   Verdict
	Breaks   []string // of a control: the invariants that must be broken, others may be
	Keeps    []string // of a control: the invariants that must hold
	Pause    bool     // of a control: it needs the pause that widens the race

	Grace      time.Duration // after the load, until every key must be decided; 0: the proof's
	Seed       int64         // of the load; 0: the proof's
	Experiment Experiment    // what the fault does beside the load; nil: nothing
}

// Experiment is a fault that also sends requests of its own, for objects of their own, to a replica that gets no load,
// and judges what followed.
type Experiment interface {
	Lasts(lockTTL time.Duration) time.Duration // about; so long is the load
	Supply(*traffic.Plan)                      // adds the objects to a plan
	// Judge lists what is broken, and why the run shows nothing, by what the fault has put into Trial.Tried.
	Judge(expect Verdict, tried any) (broken invariant.Findings, unshown []string)
}

// Setup returns the setup of the scenario's fault.
func (s Scenario) Setup() Setup { return s.Flow.spec(s.Fault).Setup }

// locked reports whether the strategy takes a lock for each key that has an effect.
func (s Scenario) locked() bool { return s.Flow.Locked != nil && s.Flow.Locked(s.Strategy) }

// Name identifies the scenario: FLOW/STRATEGY/FAULT, with @SEED if it has a seed of its own.
func (s Scenario) Name() string {
	return seeded(scenarioName(s.Flow.Name, s.Strategy, s.Fault), s.Seed)
}

// Folder is the folder of the scenario's files, relative to that of the report.
func (s Scenario) Folder() string { return strings.ReplaceAll(s.Name(), "/", "-") }

func scenarioName(flow, strategy string, fault Fault) string {
	return flow + "/" + strategy + "/" + string(fault)
}

// Fault names the fault that is injected during the load. The flows name the faults of their stores.
type Fault string

// The faults of replicas.
const (
	NoFault Fault = "none"
	Crash   Fault = "crash"
	Pause   Fault = "pause"
)

// Strategy is a strategy that a lesson offers.
type Strategy struct {
	Name   string
	Safe   bool
	Stores []string
	Why    string
}

// Only returns the scenarios of the named flow, strategy and fault; an empty name matches any.
func Only(matrix []Scenario, flow, strategy, fault string) []Scenario {
	return slices.DeleteFunc(slices.Clone(matrix), func(s Scenario) bool {
		return flow != "" && s.Flow.Name != flow || strategy != "" && s.Strategy != strategy || fault != "" && string(s.Fault) != fault
	})
}

// Quick returns the part of a matrix that takes about three minutes: the scenarios in Flow.Quick, and
// every safe strategy without a fault, under the load that catches the controls.
func Quick(matrix []Scenario) []Scenario {
	return slices.DeleteFunc(slices.Clone(matrix), func(s Scenario) bool { return !s.Flow.quick(s) })
}

// StepsOf returns the names of a lesson's steps.
func StepsOf[S ~string](steps []S) (names []string) {
	for _, s := range steps {
		names = append(names, string(s))
	}
	return names
}

// StrategiesOf converts the strategies that a lesson offers.
func StrategiesOf[S ~struct {
	Name   string
	Safe   bool
	Stores []string
	Why    string
}](list []S) (strategies []Strategy) {
	for _, s := range list {
		strategies = append(strategies, Strategy(s))
	}
	return strategies
}

// Using returns which of some strategies use a store.
func Using(store string, list []Strategy) func(strategy string) bool {
	return func(strategy string) bool {
		return slices.ContainsFunc(list, func(s Strategy) bool { return s.Name == strategy && slices.Contains(s.Stores, store) })
	}
}

// Classify returns the outcome and the problem type of an answer of the flow's service.
func (f *Flow) Classify(status int, header http.Header, body []byte) (traffic.Outcome, string) {
	outcome, problem := traffic.Classify(status, header, body)
	if slices.Contains(f.Stored, problem) {
		outcome = traffic.Rejected
	}
	return outcome, problem
}

// pace returns the Pace of a flow under a fault.
// Under a nemesis the next fault follows within a second or two. There a first answer counts only when the
// bound of I-LIVE is over after each outage, which is in the calms.
func (f *Flow) pace(of Fault, lockTTL time.Duration) judge.Pace {
	bound, after := f.Bound(of, lockTTL), f.spec(of).CatchUp
	if of == Nemesis {
		after = bound
	}
	return judge.PaceOf(bound, after)
}
