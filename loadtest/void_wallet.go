package loadtest

// voidWallets is what must be seen under each fault of the wallet flow.
//
// A commit of unknown result is resolved by the request itself, or, if its time
// is over first, told to the client as unknown, and decided by his next one with
// the same key. That each is, I-LIVE says. The numbers do not: a request may be left
// in doubt several times before it is resolved once.
func voidWallets(s Scenario, e map[string]int64) []string {
	reasons := lacking(e, need{"mongo_clients", 1, "no replica was known to MongoDB by its name, so that nobody could wait until the last was gone"})
	reasons = append(reasons, lacking(e, walletNeeds[s.Fault]...)...)
	if s.Expect == Safe && s.Fault == NoFault {
		reasons = append(reasons, lacking(e, walletSafeNeeds...)...)
		if s.Strategy == "lockid" {
			reasons = append(reasons, lacking(e, need{"conflict", 1, "nobody was refused at the lock"})...)
		}
	}
	// A transaction of inc is so short that there may be none to lose at that moment.
	if s.Strategy != "inc" && (s.Fault == StepDown || s.Fault == PrimaryPause) {
		reasons = append(reasons, lacking(e, need{"transient", 1, "no transaction was lost with its primary"})...)
	}
	if s.Fault == Crash {
		for _, step := range walletSteps {
			reasons = append(reasons, lacking(e, need{"crash_" + step, 1, "no replica was killed at " + step})...)
		}
	}
	return reasons
}

// walletSteps are those of an operation at which a replica is killed, one after the other.
var walletSteps = []string{
	"before-acquire", "after-acquire", "after-begin", "after-guard", "after-call", "before-commit", "after-commit", "after-release",
}

// walletSafeNeeds is what a strategy must have been put to to be called safe.
var walletSafeNeeds = []need{
	{"credits", 1, "nothing was credited"},
	{"debits", 1, "nothing was debited"},
	{"payments", 1, "nobody paid another"},
	{"short", 1, "nobody was short of money"},
	{"keys_shared", 1, "no key was used for two wallets"},
	{"replayed", 1, "no decided key was asked again"},
	{"overheard", 1, "nobody listened to what was said to MongoDB"},
	{"samples", 1, "nobody looked at the balances while the load ran"},
}

var failOver = need{"elections", 1, "no other primary was elected"}

var walletNeeds = map[Fault][]need{
	StepDown:     {failOver},
	PrimaryPause: {failOver},
	// Nothing that needs a majority was committed in its last half second.
	PrimaryKill: {
		failOver,
		{"ambiguous", 1, "nobody was left with a commit that only the dead primary had"},
		{"rolled_back", 1, "the dead primary had nothing that it had to take back"},
	},
	CommitUnknown: {
		{"commits_cut", 1, "no connection was cut behind its commit"},
		{"commits_failed", 1, "no commit was answered with an error although it was applied"},
		{"ambiguous", 1, "nobody was left with a commit of unknown result"},
		{"resolved", 1, "none of them was decided by running again"},
	},
	Pause: {
		{"pauses", 1, "no replica was paused"},
		{"outlived", 1, "no transaction was ended by the server while its replica stood still"},
	},
	Crash: {{"cut_off", 1, "no request was cut off by a kill"}},
}
