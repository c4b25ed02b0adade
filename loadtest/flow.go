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
// for all.
type Flow struct {
	Name     string
	Number   string // what people feel, counted beside the invariants: oversold, drift
	During   string // the invariant that is looked at while the load runs
	Leftover string // the one that no lock is left behind; "": nobody looks
	Guard    string // the last guard, which the database keeps
	Mongo    bool   // the money is in MongoDB, and replicas ask a Bonus service

	// Plan draws what is sent, Crowd says in words how much that is.
	Plan  func(Load) Plan
	Crowd func(Plan) string
	// Watch looks at the stores until ctx ends.
	Watch func(ctx context.Context, stores Stores, clock func() time.Duration) ([]Sample, error)
	// Follow is what clients send because of a success, with times from now on. May be nil.
	Follow func(Record) []Shot
	// Finale shows after the load, before the replicas are stopped, that life goes on.
	Finale func(context.Context, *run) invariant.Findings
	// Audit asks what really happened, when nobody is left who could change it.
	Audit func(context.Context, *run, []Record) (Audited, error)
	// Void says why a run shows nothing, beside what makes any run void.
	Void func(Scenario, map[string]int64) []string

	Controls []Scenario
	Faults   map[string][]Fault      // of each store
	Slower   int                     // it sends so many times less often than the load says; 0: just as often
	Least    map[Fault]int           // shortest load under a fault, in TTLs of a lock
	Stretch  map[Fault]int           // the same, with no more requests than otherwise
	Recovery map[Fault]time.Duration // what servers need under a fault before anything can succeed
	Quick    func(Scenario) bool     // part of the short proof, besides each safe strategy without a fault
	Told     func(Result) string     // a result in words
	Plot     func(Result) chart      // of the samples
	Words    Words
}

// Audited is what a flow's audit found.
type Audited struct {
	Findings invariant.Findings
	Number   int64 // Flow.Number
	Evidence map[string]int64
	Oversale *Oversale // inventory's: how it came to that
}

// Words are what the page calls things.
type Words struct {
	Claim  string // what is to be shown
	Crowd  string // who sends what
	Gauge  string // what a bar of Result.Gauge is; "": there is none
	Done   string // a key with an effect
	Levels string // what Plot shows
	Note   string // below the table of verdicts
}

// flows are all there are; of somebody else's service next to nothing is known.
var flows = []Flow{Inventory, Transfer, Wallet, {
	Name: targetFlow, Number: "oversold", Told: toldOfTarget, Words: Words{Done: "ok"},
}}

// flowOf finds a flow by its name.
func flowOf(name string) Flow {
	i := slices.IndexFunc(flows, func(f Flow) bool { return f.Name == name })
	return flows[i]
}

// Matrix is every control, then every safe strategy under no fault, under a
// crash, and under the faults of each store that it uses; sorted by fault.
func (f Flow) Matrix(strategies []Strategy) []Scenario {
	matrix := slices.Clone(f.Controls)
	for _, s := range strategies {
		if !s.Safe {
			continue
		}
		matrix = append(matrix, safe(f.Name, s.Name, NoFault), safe(f.Name, s.Name, Crash))
		for _, store := range s.Stores {
			for _, fault := range f.Faults[store] {
				matrix = append(matrix, safe(f.Name, s.Name, fault))
			}
		}
	}
	slices.SortStableFunc(matrix, func(a, b Scenario) int { return cmp.Compare(a.Fault.order(), b.Fault.order()) })
	return matrix
}

// Quick is the part of a matrix that shows the point in two or three minutes: what
// the flows chose, and every safe strategy once, under the load that catches the controls.
func Quick(matrix []Scenario) []Scenario {
	return slices.DeleteFunc(slices.Clone(matrix), func(s Scenario) bool {
		flow := flowOf(s.Flow)
		return !flow.Quick(s) && !flow.calm(s)
	})
}

// calm is a safe strategy without a fault, and no control.
func (f Flow) calm(s Scenario) bool {
	isControl := slices.ContainsFunc(f.Controls, func(c Scenario) bool { return c.Name() == s.Name() })
	return s.Expect == Safe && s.Fault == NoFault && !isControl
}

// load is a flow's load under a fault: longer, if the fault needs that.
func (f Flow) load(l Load, fault Fault, lockTTL time.Duration) Load {
	l.Rate = max(1, l.Rate/max(1, f.Slower))
	if longer := time.Duration(f.Stretch[fault]) * lockTTL; longer > l.Duration {
		l.Rate = max(1, int(float64(l.Rate)*l.Duration.Seconds()/longer.Seconds()))
		l.Duration = longer
	}
	l.Duration = max(l.Duration, time.Duration(f.Least[fault])*lockTTL)
	return l
}
