package loadtest

import "slices"

// Verdict is what a run showed.
type Verdict string

// The verdicts.
const (
	Safe     Verdict = "safe"     // nothing broken, all done that could be, and quickly back after each fault
	Violated Verdict = "violated" // an invariant is broken
	Void     Verdict = "void"     // it shows nothing: see Evidence
)

// Broken are the invariants that did not hold, in order. Oversold units, or a
// drift, are their consequence, counted for people, and no invariant of their own.
func Broken(violations map[string]int64) []string {
	var broken []string
	for invariant, n := range violations {
		if n != 0 && invariant != "oversold" && invariant != "drift" {
			broken = append(broken, invariant)
		}
	}
	slices.Sort(broken)
	return broken
}

// Judge gives the verdict, and whether it is the one that was expected.
//
// A violation counts even in a void run: it was seen. A run without one is Void
// if it could not have had one: reasons says why.
func Judge(s Scenario, violations map[string]int64, voidReasons []string) (Verdict, bool) {
	broken := Broken(violations)
	switch {
	case len(broken) > 0:
		return Violated, s.Expect == Violated && caught(s, broken) && len(voidReasons) == 0
	case len(voidReasons) > 0:
		return Void, false
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

// need is evidence without which a run shows nothing.
type need struct {
	name  string
	least int64
	why   string
}

// lacking says what is missing.
func lacking(evidence map[string]int64, needs ...need) (reasons []string) {
	for _, n := range needs {
		if evidence[n.name] < n.least {
			reasons = append(reasons, n.why)
		}
	}
	return reasons
}

// VoidReasons says why a run shows nothing; none if it does.
//
// The numbers are those of the evidence: overlaps are counted from outside, what
// a fault hit by the fault, the rest by the replicas about themselves.
func VoidReasons(s Scenario, evidence map[string]int64) []string {
	reasons := lacking(evidence, need{"overlaps", 1, "no two requests for the same overlapped on different replicas"})
	return append(reasons, flowOf(s.Flow).Void(s, evidence)...)
}
