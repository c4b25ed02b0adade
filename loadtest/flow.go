package loadtest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"shop/locking/invariant"
)

// Flow is what differs between the lessons under proof: what is sent, and what
// must be true of it. Replicas, load, faults, verdicts and reports are the same
// for all. A flow is a package below scenario/, and is handed to the engine by the
// program that runs the proof.
type Flow struct {
	Name     string
	Number   string // the damage as one number, beside the invariants: oversold, drift
	During   string // the invariant that is checked while the load runs
	Leftover string // the invariant that no lock is left behind; "": not checked
	Guard    string // the last guard, which the database keeps

	// Plan draws what is sent, Workload says in words how much that is.
	Plan     func(Load) Plan
	Workload func(Plan) string
	// Open opens what a trial needs beside PostgreSQL, and keeps it in Trial.State. May be nil.
	Open func(context.Context, *Trial) (closing func(), err error)
	// Watch samples the stores until ctx ends.
	Watch func(context.Context, *Trial) ([]Sample, error)
	// FollowUp is what clients send because of a success, with times from now on. May be nil.
	FollowUp func(Record) []ScheduledRequest
	// Postcheck shows after the load, before the replicas are stopped, that everything still works.
	Postcheck func(context.Context, *Trial) invariant.Findings
	// Audit reads what really happened, when all replicas are gone.
	Audit func(context.Context, *Trial, []Record) (Audited, error)
	// Inconclusive says why a run shows nothing, beside what makes any run inconclusive.
	Inconclusive func(Scenario, map[string]int64) []string

	Invariants []invariant.Invariant // beside those of every flow
	Evidence   map[string]string     // what its numbers count, beside those of every flow
	Controls   []Scenario
	Faults     []StoreFaults
	Outages    []Fault                      // those in which the lock service is away for a while
	Slower     int                          // it sends so many times less often than the load says; 0: just as often
	Least      map[Fault]int                // shortest load under a fault, in TTLs of a lock
	Stretch    map[Fault]int                // the same, with no more requests than otherwise
	Recovery   map[Fault]time.Duration      // what servers need under a fault before anything can succeed
	Quick      func(Scenario) bool          // part of the short proof, besides each safe strategy without a fault
	Counters   map[string]map[string]string // evidence in /metrics: by metric and kind
	Summary    func(Result) string          // a result in words
	Gauge      func(Result) Gauge           // nil: there is none
	Curves     []Curve                      // of the samples
	Words      Words
}

// StoreFaults are the faults of a store, in the order in which they are tried.
type StoreFaults struct {
	Store  string
	Faults []Fault
}

// Audited is what a flow's audit found.
type Audited struct {
	Findings invariant.Findings
	Number   int64 // Flow.Number
	Evidence map[string]int64
	Story    *Story // how it came to a violation; nil: not told
}

// Words are what the page calls things.
type Words struct {
	Claim    string // what is to be shown
	Workload string // which clients send what
	Gauge    string // what a bar of Flow.Gauge is
	Done     string // a key with an effect
	Levels   string // what the curves show
	Note     string // below the table of verdicts
}

// Gauge compares what was given away with what was there.
type Gauge struct{ Done, Over, There int64 }

// Curve is a line in the plot of the samples.
type Curve struct {
	Class string // "line true" or "line shelf": how it is drawn
	Of    func(Sample) int64
}

// Story is how it came to a violation, as time lines with text above.
type Story struct {
	Title string
	Parts []StoryPart
}

// StoryPart is some text, and the requests below it.
type StoryPart struct {
	Text string
	Bars []Bar
}

// Bar is a request under way.
type Bar struct {
	Who, Then  string
	Start, End time.Duration
	Over       bool // it got what was not there
}

// Matrix is every control, then every safe strategy under no fault, under a
// crash, and under the faults of each store that it uses; sorted by fault, so that a
// control stands beside the strategies that must do better under the same.
func (f *Flow) Matrix(strategies []Strategy) []Scenario {
	matrix := slices.Clone(f.Controls)
	for _, s := range strategies {
		if !s.Safe {
			continue
		}
		matrix = append(matrix, f.Safe(s.Name, NoFault), f.Safe(s.Name, Crash))
		for _, of := range f.Faults {
			if !slices.Contains(s.Stores, of.Store) {
				continue
			}
			for _, fault := range of.Faults {
				matrix = append(matrix, f.Safe(s.Name, fault))
			}
		}
	}
	order := []Fault{NoFault}
	for _, of := range f.Faults {
		order = append(order, of.Faults...)
	}
	order = append(order, Crash)
	place := func(s Scenario) int { return slices.Index(order, s.Fault) }
	slices.SortStableFunc(matrix, func(a, b Scenario) int { return cmp.Compare(place(a), place(b)) })
	return matrix
}

// Safe is a scenario that must be safe.
func (f *Flow) Safe(strategy string, fault Fault) Scenario {
	return Scenario{Flow: f, Strategy: strategy, Fault: fault, Expect: Safe}
}

// Control is a scenario that must be violated.
func (f *Flow) Control(strategy string, fault Fault, keeps []string, breaks ...string) Scenario {
	return Scenario{Flow: f, Strategy: strategy, Fault: fault, Expect: Violated, Breaks: breaks, Keeps: keeps}
}

// calm is a safe strategy without a fault, and no control.
func (f *Flow) calm(s Scenario) bool {
	isControl := slices.ContainsFunc(f.Controls, func(c Scenario) bool { return c.Name() == s.Name() })
	return s.Expect == Safe && s.Fault == NoFault && !isControl
}

// Load is a flow's load under a fault: longer, if the fault needs that.
func (f *Flow) Load(l Load, fault Fault, lockTTL time.Duration) Load {
	l.Rate = max(1, l.Rate/max(1, f.Slower))
	if longer := time.Duration(f.Stretch[fault]) * lockTTL; longer > l.Duration {
		l.Rate = max(1, int(float64(l.Rate)*l.Duration.Seconds()/longer.Seconds()))
		l.Duration = longer
	}
	l.Duration = max(l.Duration, time.Duration(f.Least[fault])*lockTTL)
	return l
}

// Bound is how soon something must succeed after a fault.
func (f *Flow) Bound(fault Fault, lockTTL time.Duration) time.Duration {
	return LiveBound(lockTTL) + f.Recovery[fault]
}
