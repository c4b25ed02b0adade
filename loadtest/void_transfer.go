package loadtest

// voidMoney is what must be seen under each fault of the transfer flow.
//
// Each ambiguous COMMIT is resolved by the request itself, or, if its time is over
// first, told to the client as unknown, and decided by his next one with the same
// key. (That he gets an answer then is I-LIVE.)
func voidMoney(s Scenario, e map[string]int64) []string {
	reasons := lacking(e, moneyNeeds[s.Fault]...)
	if s.Expect == Safe {
		reasons = append(reasons, lacking(e, safeNeeds[s.Fault]...)...)
	}
	switch {
	case s.Fault == LateWrite && s.Expect == Violated:
		reasons = append(reasons, lacking(e, need{"late_committed", 1, "no late write was committed"})...)
	case s.Fault == CommitCut && e["resolved"] > 0 && e["resolved"]+e["outcome_unknown"] < e["ambiguous"]:
		reasons = append(reasons, "a COMMIT without an answer was neither decided nor told to its client as unknown")
	case s.Fault == Crash:
		for _, step := range moneySteps {
			reasons = append(reasons, lacking(e, need{"crash_" + step, 1, "no replica was killed at " + step})...)
		}
	}
	return reasons
}

// safeNeeds is what a strategy must have been put to, besides, to be called safe.
var safeNeeds = map[Fault][]need{
	NoFault: {
		{"moved", 1, "no money moved"},
		{"short", 1, "nobody was short of money"},
		{"holds_posted", 1, "no hold was posted"},
		{"holds_voided", 1, "no hold was voided"},
		{"holds_expired", 1, "no hold expired"},
		{"samples", 1, "nobody looked at the balances while the load ran"},
	},
	LateWrite:    {{"late_refused", 1, "no late write was refused"}},
	LeaseRevoked: {{"fence_refused", 1, "no write under a revoked lease was refused"}},
}

var moneyNeeds = map[Fault][]need{
	LateWrite: {
		{"late_writes", 1, "no packet came after a newer holder had been there"},
		{"late_stopped", 1, "none of them came from a replica that stood still until its lease was over"},
	},
	Pause: {
		{"pauses", 2, "fewer than 2 pauses"},
		{"lock_lost", 1, "no work was ended because its lease could not be trusted any more"},
	},
	LeaseRevoked: {{"leases_revoked", 5, "fewer than 5 leases were revoked"}},
	LeaderKill:   {{"elections", 1, "no other leader was elected"}},
	NoQuorum: {
		{"quorum_losses", 1, "the quorum was not lost"},
		{"unavailable", 1, "nobody was told that the lock service does not answer"},
		{"lock_acquired_after", 1, "no lock was taken after the quorum was back"},
	},
	PGRestart: {{"pg_restarts", 1, "PostgreSQL was not restarted"}},
	CommitCut: {
		{"commits_cut_before", 1, "no connection was cut before its COMMIT arrived"},
		{"commits_cut_after", 1, "no connection was cut behind its COMMIT"},
		{"ambiguous", 1, "nobody was left with a COMMIT without an answer"},
		{"resolved", 1, "none of them was decided by running again"},
	},
	Crash: {{"cut_off", 1, "no request was cut off by a kill"}},
}
