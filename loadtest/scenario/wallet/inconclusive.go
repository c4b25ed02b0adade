package wallet

import (
	"shop/loadtest"
	"shop/wallet"
)

// inconclusive is what must be seen under each fault of the wallet flow.
//
// A commit of unknown result is resolved by the request itself, or, if its time is over
// first, answered as unknown, and decided by the client's next request with the same key.
// That each is, I-LIVE says. The numbers do not: a request may be left in doubt several
// times before it is resolved once.
func inconclusive(s loadtest.Scenario, e map[string]int64) []string {
	reasons := loadtest.Lacking(e, loadtest.Need{Evidence: "mongo_clients", Least: 1, Why: "no replica was known to MongoDB by its name, so that the end of the last one could not be awaited"})
	reasons = append(reasons, loadtest.Lacking(e, faultNeeds[s.Fault]...)...)
	if s.Expect == loadtest.Safe && s.Fault == loadtest.NoFault {
		reasons = append(reasons, loadtest.Lacking(e, safeNeeds...)...)
		if s.Strategy == "lockid" {
			reasons = append(reasons, loadtest.Lacking(e, loadtest.Need{Evidence: "conflict", Least: 1, Why: "no transaction was refused at the lock"})...)
		}
	}
	// A transaction of inc is so short that there may be none to lose at that moment.
	if s.Strategy != "inc" && (s.Fault == StepDown || s.Fault == PrimaryPause) {
		reasons = append(reasons, loadtest.Lacking(e, loadtest.Need{Evidence: "transient", Least: 1, Why: "no transaction was lost with its primary"})...)
	}
	if s.Fault == loadtest.Crash {
		for _, step := range wallet.Steps() {
			reasons = append(reasons, loadtest.Lacking(e, loadtest.Need{Evidence: "crash_" + string(step), Least: 1, Why: "no replica was killed at " + string(step)})...)
		}
	}
	return reasons
}

// safeNeeds is what a strategy must have been put to to be called safe.
var safeNeeds = []loadtest.Need{
	{Evidence: "credits", Least: 1, Why: "nothing was credited"},
	{Evidence: "debits", Least: 1, Why: "nothing was debited"},
	{Evidence: "payments", Least: 1, Why: "no payment was done"},
	{Evidence: "short", Least: 1, Why: "no wallet was short of money"},
	{Evidence: "keys_shared", Least: 1, Why: "no key was used for two wallets"},
	{Evidence: "replayed", Least: 1, Why: "no decided key was asked again"},
	{Evidence: "overheard", Least: 1, Why: "no statement to MongoDB was recorded"},
	{Evidence: "samples", Least: 1, Why: "the balances were not sampled while the load ran"},
}

var failOver = loadtest.Need{Evidence: "elections", Least: 1, Why: "no other primary was elected"}

var faultNeeds = map[loadtest.Fault][]loadtest.Need{
	StepDown:     {failOver},
	PrimaryPause: {failOver},
	// Nothing that needs a majority was committed in its last half second.
	PrimaryKill: {
		failOver,
		{Evidence: "ambiguous", Least: 1, Why: "no commit was left that only the killed primary had"},
		{Evidence: "rolled_back", Least: 1, Why: "the killed primary had nothing to roll back"},
	},
	CommitUnknown: {
		{Evidence: "commits_cut", Least: 1, Why: "no connection was cut behind its commit"},
		{Evidence: "commits_failed", Least: 1, Why: "no commit was answered with an error although it was applied"},
		{Evidence: "ambiguous", Least: 1, Why: "no commit of unknown result"},
		{Evidence: "resolved", Least: 1, Why: "none of them was decided by running again"},
	},
	loadtest.Pause: {
		{Evidence: "pauses", Least: 1, Why: "no replica was paused"},
		{Evidence: "outlived", Least: 1, Why: "no transaction was ended by the server while its replica stood still"},
	},
	loadtest.Crash: {{Evidence: "cut_off", Least: 1, Why: "no request was cut off by a kill"}},
}
