package loadtest

import "slices"

// Verdict is what a run showed.
type Verdict string

// The verdicts.
const (
	Safe         Verdict = "safe"     // nothing broken, all done that could be, and quickly back after each fault
	Violated     Verdict = "violated" // an invariant is broken
	Inconclusive Verdict = "void"     // it shows nothing: see Evidence
)

// Broken are the invariants that did not hold, in order. The flow's number (oversold
// units, a drift) is their consequence, and no invariant of its own.
func (f *Flow) Broken(violations map[string]int64) []string {
	var broken []string
	for invariant, n := range violations {
		if n != 0 && invariant != f.Number {
			broken = append(broken, invariant)
		}
	}
	slices.Sort(broken)
	return broken
}

// Judge gives the verdict, and whether it is the one that was expected.
//
// A violation counts even in an inconclusive run: it was seen. A run without one is
// inconclusive if it could not have had one: reasons says why.
func Judge(s Scenario, violations map[string]int64, reasons []string) (Verdict, bool) {
	broken := s.Flow.Broken(violations)
	switch {
	case len(broken) > 0:
		return Violated, s.Expect == Violated && caught(s, broken) && len(reasons) == 0
	case len(reasons) > 0:
		return Inconclusive, false
	default:
		return Safe, s.Expect == Safe
	}
}

// caught tells whether a control broke what it must, and nothing that it must keep.
func caught(s Scenario, broken []string) bool {
	for _, invariant := range s.Breaks {
		if !slices.Contains(broken, invariant) {
			return false
		}
	}
	return !slices.ContainsFunc(s.Keeps, func(invariant string) bool { return slices.Contains(broken, invariant) })
}

// Need is evidence without which a run shows nothing.
type Need struct {
	Evidence string
	Least    int64
	Why      string // the run shows nothing without it
}

// Lacking says what is missing.
func Lacking(evidence map[string]int64, needs ...Need) (reasons []string) {
	for _, n := range needs {
		if evidence[n.Evidence] < n.Least {
			reasons = append(reasons, n.Why)
		}
	}
	return reasons
}

// InconclusiveReasons says why a run shows nothing; none if it does.
//
// The numbers are those of the evidence: overlaps are counted from outside, what
// a fault hit by the fault, the rest by the replicas about themselves.
func InconclusiveReasons(s Scenario, evidence map[string]int64) []string {
	reasons := Lacking(evidence, Need{Evidence: "overlaps", Least: 1, Why: "no two requests for the same overlapped on different replicas"})
	return append(reasons, s.Flow.Inconclusive(s, evidence)...)
}
