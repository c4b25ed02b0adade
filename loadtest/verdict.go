package loadtest

import (
	"cmp"
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
// The numbers are those of the evidence from outside: of the clients' history, of the fault,
// of a server, or of the wire. What replicas count about themselves is not among them.
func InconclusiveReasons(s Scenario, evidence map[string]int64) (reasons []string) {
	needs := []Need{{Evidence: "overlaps", Why: "no two requests for the same overlapped on different replicas"}}
	if s.Fault != NoFault && (s.Fault != Soak || evidence["restarts"] > 0) { // a shift of a soak may have none
		needs = append(needs, Need{Evidence: "hit", Why: "no request was under way while the fault lasted"})
	}
	needs = slices.Concat(needs, s.Flow.Needs, s.Flow.spec(s.Fault).Needs)
	if s.Fault == Crash {
		for _, step := range s.Flow.Steps {
			needs = append(needs, Need{Evidence: "crash_" + step, Why: "no request was cut off by a kill at " + step})
		}
	}
	for _, n := range needs {
		if evidence[n.Evidence] < max(1, n.Least) && (n.Expect == "" || n.Expect == s.Expect) {
			reasons = append(reasons, n.Why)
		}
	}
	if _, watched := evidence["lock_calls"]; s.locked() && !watched {
		reasons = append(reasons, "the lock service was not watched")
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
	{Code: "I-BODY", Name: "true-answers", Means: "each field of an answer, to a write or to a read, is what the plan and the database say, and what a client owns is shown to it"},
	{Code: "I-CLOCK", Name: "true-times", Means: "what a success made has a time between the first request for it and its answer, by the clients' clock, give or take 50 ms"},
	{Code: "I-DENY", Name: "not-allowed-is-refused", Means: "a request that its client is not allowed to make is refused, with a problem that says why"},
	{Code: "I-LIN", Name: "linearizable", Means: "the answers are those of a service that does one operation after the other, each between its call and its return"},
	{Code: "I-LIVE", Name: "liveness", Means: "new requests succeed within a bound after each fault, every key is decided, a decided key gets the same answer when it is sent again, and in the end everything still works"},
	{Code: "I-LOCKED", Name: "locks-are-asked-for", Means: "a strategy that takes a lock for each key asks the lock service for as many as keys have an effect, as the service counts them"},
	{Code: "I-GOODPUT", Name: "goodput", Means: "outside of an outage a part of the keys that wait is decided in each two seconds, and no fault keeps nearly all of them waiting for longer than it lasts and the bound of I-LIVE"},
	{Code: "I-RECOVER", Name: "recovery", Means: "after the end of a fault, within a bound, as much is decided in a second as 90 % of the rate before it, or all that waits"},
	{Code: "I-BUSY", Name: "busy-share", Means: "outside of the outages, few first answers are that nothing was done"},
	CellInvariant,
	{Code: "I-ERROR", Name: "error-share", Means: "outside of the outages, few first answers are unknown, or do not come"},
}

// AllInvariants are those of a flow, its own first.
func (f *Flow) AllInvariants() []invariant.Invariant { return slices.Concat(f.Invariants, Invariants) }

// evidence says what the numbers of every flow count that are not verdicts, and that come from
// outside of the replicas.
var evidence = map[string]string{
	"overlaps":          "requests under way for a product, an account or a wallet, while another replica had one for the same",
	"attempts":          "requests on the wire, repetitions included",
	"sent_again":        "repetitions of a key that was not decided",
	"replayed":          "decided keys that were asked again in the end, and answered",
	"unknown_answers":   "answers, or missing answers, after which the client could not know",
	"outcome_unknown":   "of these, COMMITs that the replica could not decide either",
	"stale_answers":     "answers that nothing was done since the row has seen a newer fence",
	"lost_answers":      "answers that nothing was done since the lock was lost",
	"hit":               "requests under way while a fault lasted",
	"done":              "keys of the load that had an effect",
	"restarts":          "stores that were killed and started again in a shift of a soak",
	"faults":            "faults of a schedule that hit something",
	"faults_at_once":    "rounds in which two of them did at once",
	"chunks_lost":       "chunks of data between a replica and a store that were lost",
	"chunks_delayed":    "… that came late",
	"closes_late":       "connections of killed replicas of whose end a store learned late",
	"cut_off":           "requests that lost their replica in the middle",
	"disturbed":         "requests under way while a fault lasted that were not decided by their answer, or got none",
	"refused_meanwhile": "answers, while a fault lasted, that nothing was done",
	"done_meanwhile":    "requests that were sent, and succeeded, while a fault lasted",
	"decided_after_cut": "keys whose COMMIT was cut or left in doubt on the wire, and that were decided",
	"silent_retries":    "requests retried by net/http itself",
	"samples":           "samples of the database while the load ran",
	"crashes":           "kills of a replica that cut a request off",
	"rightful_refused":  "… although no lease had ended: rightful holders",
	"pauses":            "times a replica was stopped for longer than its lease, with a request in its hands",
	"elections":         "new leaders of the lock service, or new primaries",
	"lock_calls":        "calls of the replicas to the lock service that take or give back a lock, by what the server counts",
	"lock_calls_after":  "of these, after the lock service was back",
	"leases_ended":      "leases that the lock service ended while the process that had them lived",
	"cells_hit":         "cells of the crash matrix in which a request was hit at its step",
	"goodput_percent":   "least part of the waiting keys that was decided in two seconds outside of an outage",
	"recovery_ms":       "longest time from the end of a fault to 90 % of the rate before",
	"busy_percent":      "part of the first answers outside of the outages that nothing was done",
	"error_percent":     "part of the first answers outside of the outages that are unknown, or did not come",
}

// explaining says what replicas count about themselves. It may explain a run, and saves none.
var explaining = map[string]string{
	"lock_acquired":  "locks taken",
	"lock_busy":      "attempts to take a lock that another holder had",
	"lock_timed_out": "waits for a lock that were given up",
	"lock_lost":      "holders that noticed that their lock was gone",
	"guard_tripped":  "times the last guard, a CHECK of the table or the schema, refused a write",
	"retried":        "transactions that ran again",
	"ambiguous":      "COMMITs that got no answer",
	"resolved":       "and that were decided by the same key",
	"unavailable":    "requests refused because the lock service, or the bonus service, did not answer",
	"partitions":     "parts of the history that were checked for linearizability",
	"check_ms":       "milliseconds that the check of the history took",
}

// Explain says what a number of the evidence counts, or the flow's number.
func (f *Flow) Explain(name string) string {
	if step, at := strings.CutPrefix(name, "crash_"); at {
		return "replicas that killed themselves at " + step
	}
	return cmp.Or(f.Evidence[name], evidence[name], explaining[name])
}

// Counts tells whether a number is one that replicas count about themselves.
func (f *Flow) Counts(name string) bool {
	return explaining[name] != "" || slices.Contains(f.Counted, name)
}
