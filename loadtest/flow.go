package loadtest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"shop/loadtest/linear"
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
	// Archive empties, between two shifts of a soak, what grows by nature, and dates back what is
	// kept for a while, so that it is purged. May be nil: there is nothing.
	Archive func(context.Context, *Trial) error
	// Linear gives the parts of a history that have nothing to do with each other, each with
	// its model. May be nil: histories are not checked.
	Linear func(linear.History) ([]linear.Partition, error)
	// Inconclusive says why a run shows nothing, where Needs cannot say it. May be nil.
	Inconclusive func(Scenario, map[string]int64) []string

	Moments      map[Action]string          // the field of a success that says when its effect was made
	Invariants   []invariant.Invariant      // beside those of every flow
	Evidence     map[string]string          // what its numbers count, beside those of every flow
	Counted      []string                   // of these, the kinds that its replicas count in /metrics, in NAME_events_total
	Locked       func(strategy string) bool // it takes a lock for each key that has an effect, and the lock service counts them; nil: none does
	Steps        []string                   // at which CrashSteps kills replicas; none: they are killed at any moment
	Cells        *Cells                     // of CrashMatrix; nil: there are none
	Needs        []Need                     // without which any run shows nothing
	Faults       []FaultSpec                // in the order in which they are tried, NoFault first
	Controls     []Scenario
	Pace         Pace                // what it must keep up under load, whatever the fault
	ControlGrace time.Duration       // how long a control may leave a key undecided; 0: as long as the others
	Quick        []string            // STRATEGY/FAULT: part of the short proof, besides each safe strategy without a fault
	Long         []string            // STRATEGY/FAULT: longer in the whole proof, so that enough operations are checked
	Slower       int                 // it sends so many times less often than the load says; 0: just as often
	Summary      func(Result) string // a result in words
	Gauge        func(Result) Gauge  // nil: there is none
	Curves       []Curve             // of the samples
	Words        Words
}

// FaultSpec is what a flow has to know of a fault.
type FaultSpec struct {
	Fault    Fault
	Store    string        // strategies that use it must survive the fault; "": all must
	Needs    []Need        // without which a run shows nothing
	Outage   bool          // the lock service is away for a while, and not each key has a lock
	Least    int           // shortest load, in TTLs of a lock
	Stretch  int           // the same, with no more requests than otherwise
	Recovery time.Duration // what servers need before anything can succeed
	Pace     Pace          // what must be kept up all the same
	Slower   int           // the load has so many times fewer requests: what waited has to be caught up with; 0: just as many
	Apart    bool          // no part of the matrix: only where it is asked for
}

// spec is what is known of a fault; nothing, if it is none of the flow's.
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
	Story    *Story             // how it came to a violation; nil: there is none
	Effects  []Stored           // of all keys that the database has, so that others have none; nil: it was not asked
	Own      []linear.Operation // what the service did by itself
}

// Words are what the page calls things.
type Words struct {
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
	Over       bool // it sold beyond the stock
}

// Matrix is every control, every safe strategy under each fault of the stores that it
// uses, and one under CrashMatrix; sorted by fault, so that a control stands beside the strategies that must do
// better under the same.
func (f *Flow) Matrix(strategies []Strategy) []Scenario {
	matrix := slices.Clone(f.Controls)
	for _, s := range strategies {
		for _, u := range f.Faults {
			if s.Safe && !u.Apart && (u.Store == "" || slices.Contains(s.Stores, u.Store)) {
				matrix = append(matrix, f.Safe(s.Name, u.Fault))
			}
		}
	}
	if f.Cells != nil {
		matrix = append(matrix, f.Safe(f.Cells.Strategy, CrashMatrix))
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

// quick tells whether a scenario is part of the short proof: chosen by the flow, or a safe
// strategy without a fault that is no control.
func (f *Flow) quick(s Scenario) bool {
	isControl := slices.ContainsFunc(f.Controls, func(c Scenario) bool { return c.Name() == s.Name() })
	return slices.Contains(f.Quick, s.Strategy+"/"+string(s.Fault)) || s.Expect == Safe && s.Fault == NoFault && !isControl
}

// Load is a flow's load under a fault: longer, if the fault needs that.
func (f *Flow) Load(l Load, fault Fault, lockTTL time.Duration) Load {
	u := f.spec(fault)
	l.Rate = max(1, l.Rate/max(1, f.Slower)/max(1, u.Slower))
	if longer := time.Duration(u.Stretch) * lockTTL; longer > l.Duration {
		l.Rate = max(1, int(float64(l.Rate)*l.Duration.Seconds()/longer.Seconds()))
		l.Duration = longer
	}
	l.Duration = max(l.Duration, time.Duration(u.Least)*lockTTL)
	return l
}

// Bound is how soon something must succeed after a fault.
func (f *Flow) Bound(fault Fault, lockTTL time.Duration) time.Duration {
	return LiveBound(lockTTL) + f.spec(fault).Recovery
}

// Scenario is a strategy under a fault, and what must come of it.
type Scenario struct {
	Flow     *Flow
	Strategy string
	Fault    Fault
	Expect   Verdict
	Breaks   []string // a control: at least these must be broken
	Keeps    []string // a control: and these must hold all the same

	Grace time.Duration // after the load, until every key must be decided; 0: the proof's
	Seed  int64         // of the load; 0: the proof's
	Cells []Cell        // that it tries under CrashMatrix; none: all
}

// locked tells whether its strategy takes a lock for each key that has an effect.
func (s Scenario) locked() bool { return s.Flow.Locked != nil && s.Flow.Locked(s.Strategy) }

// Name is unique in a matrix.
func (s Scenario) Name() string {
	return seeded(scenarioName(s.Flow.Name, s.Strategy, s.Fault), s.Seed)
}

// Folder is where its files are, below that of the report.
func (s Scenario) Folder() string { return strings.ReplaceAll(s.Name(), "/", "-") }

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

// Strategy is one that a lesson offers.
type Strategy struct {
	Name   string
	Safe   bool
	Stores []string
	Why    string
}

// Only keeps the scenarios of the named flow, strategy and fault; an empty name is any.
func Only(matrix []Scenario, flow, strategy, fault string) []Scenario {
	return slices.DeleteFunc(slices.Clone(matrix), func(s Scenario) bool {
		return flow != "" && s.Flow.Name != flow || strategy != "" && s.Strategy != strategy || fault != "" && string(s.Fault) != fault
	})
}

// Quick is the part of a matrix that takes about three minutes: what the flows
// chose, and every safe strategy once, under the load that catches the controls.
func Quick(matrix []Scenario) []Scenario {
	return slices.DeleteFunc(slices.Clone(matrix), func(s Scenario) bool { return !s.Flow.quick(s) })
}

// StepsOf are the names of a lesson's steps.
func StepsOf[S ~string](steps []S) (names []string) {
	for _, s := range steps {
		names = append(names, string(s))
	}
	return names
}

// StrategiesOf are those that a lesson offers.
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
