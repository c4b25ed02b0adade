package loadtest

import (
	"slices"
	"strings"

	"shop/locking/invariant"
)

// Invariants are those of every flow.
var Invariants = []invariant.Invariant{
	invariant.OncePerKey,
	{Code: "I-ACK", Name: "acknowledged-is-stored", Means: "what was acknowledged is there, as acknowledged"},
	{Code: "I-REJ", Name: "refused-is-absent", Means: "what was refused, or never asked for, is not there"},
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
