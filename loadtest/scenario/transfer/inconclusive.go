package transfer

import (
	"shop/loadtest"
	"shop/transfer"
)

// inconclusive is what must be seen under each fault of the transfer flow.
//
// Each ambiguous COMMIT is resolved by the request itself, or, if its time is over
// first, answered as unknown, and decided by the client's next request with the same key.
// (That it is answered then is I-LIVE.)
func inconclusive(s loadtest.Scenario, e map[string]int64) []string {
	reasons := loadtest.Lacking(e, faultNeeds[s.Fault]...)
	if s.Expect == loadtest.Safe {
		reasons = append(reasons, loadtest.Lacking(e, safeNeeds[s.Fault]...)...)
	}
	switch {
	case s.Fault == LateWrite && s.Expect == loadtest.Violated:
		reasons = append(reasons, loadtest.Lacking(e, loadtest.Need{Evidence: "late_committed", Least: 1, Why: "no late write was committed"})...)
	case s.Fault == CommitCut && e["resolved"] > 0 && e["resolved"]+e["outcome_unknown"] < e["ambiguous"]:
		reasons = append(reasons, "a COMMIT without an answer was neither decided nor told to its client as unknown")
	case s.Fault == loadtest.Crash:
		for _, step := range transfer.Steps() {
			reasons = append(reasons, loadtest.Lacking(e, loadtest.Need{Evidence: "crash_" + string(step), Least: 1, Why: "no replica was killed at " + string(step)})...)
		}
	}
	return reasons
}

// safeNeeds is what a strategy must have been put to, besides, to be called safe.
var safeNeeds = map[loadtest.Fault][]loadtest.Need{
	loadtest.NoFault: {
		{Evidence: "moved", Least: 1, Why: "no money moved"},
		{Evidence: "short", Least: 1, Why: "no account was short of money"},
		{Evidence: "holds_posted", Least: 1, Why: "no hold was posted"},
		{Evidence: "holds_voided", Least: 1, Why: "no hold was voided"},
		{Evidence: "holds_expired", Least: 1, Why: "no hold expired"},
		{Evidence: "samples", Least: 1, Why: "the balances were not sampled while the load ran"},
	},
	LateWrite:    {{Evidence: "late_refused", Least: 1, Why: "no late write was refused"}},
	LeaseRevoked: {{Evidence: "fence_refused", Least: 1, Why: "no write under a revoked lease was refused"}},
}

var faultNeeds = map[loadtest.Fault][]loadtest.Need{
	LateWrite: {
		{Evidence: "late_writes", Least: 1, Why: "no write came after a newer holder had written"},
		{Evidence: "late_stopped", Least: 1, Why: "none of them came from a replica that stood still until its lease was over"},
	},
	loadtest.Pause: {
		{Evidence: "pauses", Least: 2, Why: "fewer than 2 pauses"},
		{Evidence: "lock_lost", Least: 1, Why: "no work was ended because its lease could not be trusted any more"},
	},
	LeaseRevoked: {{Evidence: "leases_revoked", Least: 5, Why: "fewer than 5 leases were revoked"}},
	LeaderKill:   {{Evidence: "elections", Least: 1, Why: "no other leader was elected"}},
	NoQuorum: {
		{Evidence: "quorum_losses", Least: 1, Why: "the quorum was not lost"},
		{Evidence: "unavailable", Least: 1, Why: "no client was told that the lock service does not answer"},
		{Evidence: "lock_acquired_after", Least: 1, Why: "no lock was taken after the quorum was back"},
	},
	PGRestart: {{Evidence: "pg_restarts", Least: 1, Why: "PostgreSQL was not restarted"}},
	CommitCut: {
		{Evidence: "commits_cut_before", Least: 1, Why: "no connection was cut before its COMMIT arrived"},
		{Evidence: "commits_cut_after", Least: 1, Why: "no connection was cut behind its COMMIT"},
		{Evidence: "ambiguous", Least: 1, Why: "no COMMIT was left without an answer"},
		{Evidence: "resolved", Least: 1, Why: "none of them was decided by running again"},
	},
	loadtest.Crash: {{Evidence: "cut_off", Least: 1, Why: "no request was cut off by a kill"}},
}
