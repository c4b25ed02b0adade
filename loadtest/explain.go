// SPDX-License-Identifier: MIT

package loadtest

import (
	"cmp"
	"slices"
	"strings"
)

// evidence describes the numbers of every flow that come from outside of the replicas and are not
// violations.
var evidence = map[string]string{
	"overlaps":          "pairs of requests with different keys that were under way at the same time, on different replicas, for one object: a product, an account or a wallet",
	"attempts":          "requests sent, retries included",
	"sent_again":        "retries of undecided keys",
	"replayed":          "decided keys that were sent once more after the load, and answered",
	"together":          "transactions that answered several requests, by the transaction ids of the replies",
	"unknown_answers":   "requests after whose answer, or missing answer, the outcome was unknown",
	"outcome_unknown":   "of these, requests whose COMMIT the replica could not decide either",
	"stale_answers":     "answers that nothing was done because the row has seen a newer fence",
	"lost_answers":      "answers that nothing was done because the lock was lost",
	"hit":               "requests under way while a fault lasted",
	"done":              "keys of the load that had an effect",
	"at_rest":           "figures of processes and stores at rest that were compared with those before the load",
	"faults":            "faults of a schedule that hit something",
	"faults_at_once":    "rounds in which two faults at once hit something",
	"chunks_lost":       "chunks of data between a replica and a store that were lost",
	"chunks_delayed":    "chunks of data between a replica and a store that were delayed",
	"closes_late":       "connections of killed replicas whose end a store noticed late",
	"cut_off":           "requests under way while a fault lasted that got no answer",
	"disturbed":         "requests under way while a fault lasted that got no final answer",
	"refused_meanwhile": "requests under way while a fault lasted that were answered that nothing was done",
	"done_meanwhile":    "requests that were sent and succeeded while a fault lasted",
	"all_killed":        "times all servers were killed within a second",
	"done_after":        "writes that were sent and succeeded after the last fault",
	"commits_waited":    "COMMITs that waited for a standby that was away, by the server's own list",
	"promotions":        "standbys that were promoted after the primary was lost",
	"decided_after_cut": "keys that were decided although their COMMIT was cut off or left in doubt",
	"silent_retries":    "requests retried by net/http itself: reads, and writes of which nothing had been sent",
	"samples":           "samples of the database during the load",
	"hung_up":           "clients that closed their connection before the answer",
	"crashes":           "kills of a replica that cut a request off",
	"rightful_refused":  "refusals of a rightful holder, although no lease had ended",
	"pauses":            "pauses of a replica for longer than its lease, with a request under way",
	"elections":         "new leaders of the lock service, or new primaries",
	"lock_calls":        "calls of the replicas for locks, by the lock service's own count: in Redis scripts, in etcd entries in its queues",
	"lock_calls_after":  "of these, calls after the lock service was available again",
	"leases_ended":      "leases that the lock service ended while their holder was running",
	"goodput_percent":   "smallest share of the waiting keys that was decided in two seconds outside of outages",
	"recovery_ms":       "longest time from the end of a fault until the rate was 90 % of the rate before the first fault",
	"busy_percent":      "share of the first answers outside of outages that say that nothing was done",
	"error_percent":     "share of the first answers outside of outages that leave the outcome unknown or are missing",
}

// explaining describes what replicas count about themselves, and the figures of the check of the history.
// These numbers may explain a run; no verdict depends on them.
var explaining = map[string]string{
	"lock_acquired":  "locks taken",
	"lock_busy":      "attempts to take a lock that another holder had",
	"lock_timed_out": "waits for a lock that timed out",
	"lock_lost":      "holders that noticed the loss of their lock",
	"guard_tripped":  "writes that the last guard, a CHECK of the table or the schema, refused",
	"retried":        "transactions that were retried",
	"ambiguous":      "COMMITs that got no answer",
	"resolved":       "of these, COMMITs that a retry under the same key decided",
	"unavailable":    "requests refused because the lock service, or the bonus service, did not answer",
	"partitions":     "partitions of the history that were checked for linearizability",
	"check_ms":       "duration of the check of the history, in milliseconds",
}

// Explain describes a number of the evidence, or the flow's number.
func (f *Flow) Explain(name string) string {
	if step, at := strings.CutPrefix(name, "crash_"); at {
		return "replicas that a failpoint killed at " + step
	}
	return cmp.Or(f.Evidence[name], evidence[name], explaining[name])
}

// Counts reports whether a number is one that replicas count about themselves.
func (f *Flow) Counts(name string) bool {
	return explaining[name] != "" || slices.Contains(f.Counted, name)
}
