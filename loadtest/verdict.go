// SPDX-License-Identifier: MIT

package loadtest

import (
	"fmt"
	"slices"

	"shop/loadtest/judge"
	"shop/locking/invariant"
)

// Verdict is the conclusion from a run.
type Verdict string

// The verdicts.
const (
	Safe         Verdict = "safe"     // all invariants hold, those of liveness included
	Violated     Verdict = "violated" // an invariant is broken
	Inconclusive Verdict = "void"     // the run shows nothing: see InconclusiveReasons
)

// Broken returns the invariants that did not hold, in order. The flow's number (oversold units, a drift)
// is a consequence of them, and not an invariant itself.
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

// Judge returns the verdict, and whether the run is as expected. reasons are those of InconclusiveReasons.
//
// A violation counts even if there are reasons, since it was seen. A run without a violation is
// inconclusive if there are reasons. A control with reasons is not as expected.
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

// caught reports whether a control broke all invariants that it must break, and none that it must keep.
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
	Why      string  // the reason why a run without it shows nothing
	Expect   Verdict // needed only of scenarios with this expected verdict; "": of all
	Of       string  // needed only of this strategy; "": of all
	Not      string  // not needed of this strategy
}

// InconclusiveReasons returns the reasons why a run shows nothing; none if it shows something.
//
// evidence comes from outside of the replicas: from the clients' history, the fault, a server, or the
// network traffic. It must not hold what replicas count about themselves.
func InconclusiveReasons(s Scenario, evidence map[string]int64) (reasons []string) {
	needs := []Need{{Evidence: "overlaps", Least: judge.OverlapsLeast, Why: fmt.Sprintf("%d pairs of requests with different keys overlapped for one object on different replicas; at least %d must", evidence["overlaps"], judge.OverlapsLeast)}}
	if s.Fault == NoFault {
		needs = append(needs,
			Need{Evidence: "samples", Least: 5, Expect: Safe, Why: "the database was sampled fewer than 5 times while the load ran"},
			Need{Evidence: "together", Least: 3, Of: Combined, Why: "fewer than 3 transactions answered several requests"})
	} else {
		needs = append(needs, Need{Evidence: "hit", Why: "no request was under way while the fault lasted"})
	}
	needs = append(needs, s.Flow.spec(s.Fault).Needs...)
	if s.Fault == Crash {
		for _, step := range s.Flow.Steps {
			needs = append(needs, Need{Evidence: "crash_" + step, Why: "no kill at " + step + " cut a request off"})
		}
	}
	for _, n := range needs {
		if evidence[n.Evidence] < max(1, n.Least) && (n.Expect == "" || n.Expect == s.Expect) && (n.Of == "" || n.Of == s.Strategy) && (n.Not == "" || n.Not != s.Strategy) {
			reasons = append(reasons, n.Why)
		}
	}
	if _, watched := evidence["lock_calls"]; s.locked() && !watched {
		reasons = append(reasons, "the lock service was not watched")
	}
	return reasons
}

// Invariants are the invariants of every flow.
var Invariants = []invariant.Invariant{
	invariant.OncePerKey,
	{Code: "I-ACK", Name: "acknowledged-is-stored", Means: "every acknowledged effect is stored, as it was acknowledged"},
	{Code: "I-REJ", Name: "refused-is-absent", Means: "no effect is stored of a request that was refused or never sent"},
	{Code: "I-BODY", Name: "true-answers", Means: "each field of an answer, to a write or to a read, agrees with the plan and the database, and a client can read what it owns"},
	{Code: "I-CLOCK", Name: "true-times", Means: "the time that the service gives to an effect is between the first request for it and the answer, by the clients' clock, to within 50 ms"},
	{Code: "I-DENY", Name: "not-allowed-is-refused", Means: "a request that its client is not allowed to make is refused, with a problem that says why"},
	{Code: "I-ALLOW", Name: "allowed-is-not-refused", Means: "a write that its client is allowed to make is refused only for a known reason: no stock, no money, or something that has ended"},
	{Code: "I-LIN", Name: "linearizable", Means: "the answers can come from a service that does one operation after the other, each between its call and its return"},
	{Code: "I-LIVE", Name: "liveness", Means: "new requests succeed within a bound after each fault, every key is decided, a decided key gets the same answer when it is sent again, and in the end everything still works"},
	{Code: "I-LOCKED", Name: "locks-are-asked-for", Means: "a strategy that takes a lock for each key calls the lock service, by its own count, as often as the locks of all keys with an effect need (or of all objects, if keys share a lock; under a fault with an outage, at least once)"},
	{Code: "I-GOODPUT", Name: "goodput", Means: "outside of outages, a share of the waiting keys is decided in each two seconds, and no fault keeps nearly all keys waiting for longer than its duration plus the bound of I-LIVE"},
	{Code: "I-RECOVER", Name: "recovery", Means: "within a bound after the end of a fault, the keys decided in a second are 90 % of the rate before the first fault, or of the keys that wait"},
	{Code: "I-BUSY", Name: "busy-share", Means: "outside of outages, few first answers say that nothing was done"},
	LeakInvariant,
	ReplicatedInvariant,
	{Code: "I-ERROR", Name: "error-share", Means: "outside of outages, few first answers leave the outcome unknown or are missing; without a fault, none is an internal error"},
}

// AllInvariants returns the invariants of a flow, its own first.
func (f *Flow) AllInvariants() []invariant.Invariant { return slices.Concat(f.Invariants, Invariants) }
