package loadtest

import (
	"slices"
	"strings"

	"shop/locking/invariant"
)

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
	Least    int64   // 0: 1
	Why      string  // the run shows nothing without it
	Expect   Verdict // only of scenarios of which this is expected; "": of all
}

// InconclusiveReasons says why a run shows nothing; none if it does.
//
// The numbers are those of the evidence: overlaps are counted from outside, what
// a fault hit by the fault, the rest by the replicas about themselves.
func InconclusiveReasons(s Scenario, evidence map[string]int64) (reasons []string) {
	needs := []Need{{Evidence: "overlaps", Why: "no two requests for the same overlapped on different replicas"}}
	needs = slices.Concat(needs, s.Flow.Needs, s.Flow.spec(s.Fault).Needs)
	if s.Fault == Crash {
		for _, step := range s.Flow.Steps {
			needs = append(needs, Need{Evidence: "crash_" + step, Why: "no replica was killed at " + step})
		}
	}
	for _, n := range needs {
		if evidence[n.Evidence] < max(1, n.Least) && (n.Expect == "" || n.Expect == s.Expect) {
			reasons = append(reasons, n.Why)
		}
	}
	if s.Flow.Inconclusive != nil {
		reasons = append(reasons, s.Flow.Inconclusive(s, evidence)...)
	}
	return reasons
}

// Invariants are those of every flow.
var Invariants = []invariant.Invariant{
	invariant.OncePerKey,
	{Code: "I-ACK", Name: "acknowledged-is-stored", Means: "what was acknowledged is there, as acknowledged"},
	{Code: "I-REJ", Name: "refused-is-absent", Means: "what was refused, or never asked for, is not there"},
	{Code: "I-DENY", Name: "not-allowed-is-refused", Means: "a request that its client is not allowed to make is refused, with a problem that says why"},
	{Code: "I-LIVE", Name: "liveness", Means: "new requests succeed within a bound after each fault, every key is decided, a decided key gets the same answer when it is sent again, and in the end everything still works"},
}

// AllInvariants are those of a flow, its own first.
func (f *Flow) AllInvariants() []invariant.Invariant { return slices.Concat(f.Invariants, Invariants) }

// evidence says what the numbers of every flow count that are not verdicts.
var evidence = map[string]string{
	"overlaps":            "requests under way for a product, an account or a wallet, while another replica had one for the same",
	"attempts":            "requests on the wire, repetitions included",
	"sent_again":          "repetitions of a key that was not decided",
	"replayed":            "decided keys that were asked again in the end, and answered",
	"unknown_answers":     "answers, or missing answers, after which the client could not know",
	"outcome_unknown":     "of these, COMMITs that the replica could not decide either",
	"cut_off":             "requests that lost their replica in the middle",
	"silent_retries":      "requests retried by net/http itself",
	"samples":             "samples of the database while the load ran",
	"crashes":             "replicas killed",
	"lock_acquired":       "locks taken",
	"lock_acquired_after": "locks taken after the lock service was back",
	"lock_busy":           "attempts to take a lock that another holder had",
	"lock_timed_out":      "waits for a lock that were given up",
	"lock_lost":           "holders that noticed that their lock was gone",
	"guard_tripped":       "times the last guard, a CHECK of the table or the schema, refused a write",
	"retried":             "transactions that ran again",
	"ambiguous":           "COMMITs that got no answer",
	"resolved":            "and that were decided by the same key",
	"rightful_refused":    "… although no holder was late: rightful holders",
	"unavailable":         "requests refused because the lock service, or the bonus service, did not answer",
	"pauses":              "times a replica was stopped for longer than its lease",
	"elections":           "new leaders of the lock service, or new primaries",
}

// Explain says what a number of the evidence counts, or the flow's number.
func (f *Flow) Explain(name string) string {
	if step, at := strings.CutPrefix(name, "crash_"); at {
		return "replicas that killed themselves at " + step
	}
	if own := f.Evidence[name]; own != "" {
		return own
	}
	return evidence[name]
}
