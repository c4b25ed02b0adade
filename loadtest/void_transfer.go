package loadtest

// voidMoney is what must be seen under each fault of the transfer flow.
//
// That all ambiguous COMMITs were resolved is I-LIVE: who is told of one sends
// the same key again until it is decided. The replicas' own counters need not be
// equal: a request whose second attempt is cut too counts two COMMITs, and is
// resolved once, or by the next request with its key.
func voidMoney(s Scenario, e map[string]int64) []string {
	if s.Strategy == "lease-id-fence" && s.Fault == NoFault {
		return lacking(e, need{"rightful_refused", 1, "no rightful holder was refused"})
	}
	reasons := lacking(e, moneyNeeds[s.Fault]...)
	refused := max(e["late_refused"], e["fence_refused"])
	switch {
	case s.Fault == LateWrite && s.Expect == Safe && refused == 0:
		return append(reasons, "no late write was refused")
	case s.Fault == LeaseRevoked && s.Expect == Safe && e["fence_refused"] == 0:
		return append(reasons, "no write under a revoked lease was refused")
	case s.Fault == Crash:
		for _, step := range moneySteps {
			reasons = append(reasons, lacking(e, need{"crash_" + step, 1, "no replica was killed at " + step})...)
		}
	}
	return reasons
}

var moneyNeeds = map[Fault][]need{
	LateWrite: {{"late_writes", 1, "no packet came after a newer holder had been there"}},
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
