package report

import "strings"

// invariants says in a sentence what each of them promises.
var invariants = []struct{ name, means string }{
	{"S1", "the stock is what was put there minus what was bought, by order lines and by movements"},
	{"S1-DURING", "and so it is at every look while the load runs"},
	{"S2", "what left the shelf is what buyers were told, give or take what is unknown"},
	{"I-ACK", "what was acknowledged is there, as acknowledged"},
	{"I-REJ", "what was refused, or never asked for, is not there"},
	{"I-ONCE", "a key has one effect, and every final answer to it is the same, byte for byte"},
	{"I-WHOLE", "an order has all its lines or does not exist"},
	{"I-LIVE", "things succeed soon after each fault, every key is decided, and answered when asked again, and a last purchase works on every product"},
	{"I-SOLD", "all that was there is sold"},
	{"T1", "all money that was paid in is there, and no more"},
	{"T1-DURING", "and so it is at every look while the load runs; no balance is below what it holds, and all are what their entries say"},
	{"T2", "a posted transfer has two entries that sum up to nothing, every other one has none"},
	{"T3", "a balance is its opening and its entries, what is held is the sum of the holds, and no more is held than there is"},
	{"T4", "the fences of an account's entries never go down"},
	{"T6", "no lock is left behind when nobody is left to hold it"},
	{"M1", "all money that was put in is there, with the bonuses, and no more"},
	{"M1-DURING", "and so it is at every look while the load runs; no balance is below 0, and all are what their entries say"},
	{"M2", "a credit has one entry of its amount and its bonus, a debit one, a payment two that sum up to nothing, a refusal none; a balance is its opening and its entries, and not below 0"},
	{"M3", "no operation is done twice"},
	{"M4", "all members of the replica set are the same, and nothing that was acknowledged is rolled back"},
	{"W-SIDE", "the outside applies an operation once, what it gave is in a balance exactly if it was committed, and without a fault no request asks twice, unless it came to a time limit"},
	{"W-WIRE", "on the wire, each transaction begins with its lock, which is new each time, nothing is done outside of one, and none is committed behind an error"},
	{"I-HOLD", "of post, void and expiry exactly one wins, and it is the one that was told; what is over is not held"},
	{"I-RIGHT", "nobody who has a right is refused: not the holder of a lock while nobody is late, not the owner of a wallet but for lack of funds"},
	{"I-SPENT", "all that is available can be spent, and no more; who has enough is not refused"},
	{"oversold", "units sold beyond what ever was there"},
	{"drift", "minor units by which balances differ from what their entries say"},
}

func means(invariant string) string {
	for _, promise := range invariants {
		if promise.name == invariant {
			return promise.means
		}
	}
	return ""
}

// evidenceMeans says what the numbers count that are not verdicts.
var evidenceMeans = map[string]string{
	"overlaps":            "requests under way for a product, an account or a wallet, while another replica had one for the same",
	"attempts":            "requests on the wire, repetitions included",
	"sent_again":          "repetitions of a key that was not decided",
	"replayed":            "decided keys that were asked again in the end, and answered",
	"unknown_answers":     "answers, or missing answers, after which the client could not know",
	"outcome_unknown":     "of these, COMMITs that the replica could not decide either",
	"cut_off":             "requests that lost their replica in the middle",
	"silent_retries":      "requests that were repeated behind the recorder's back",
	"samples":             "looks at the database while the load ran",
	"crashes":             "replicas killed",
	"locks_deleted":       "locks deleted under their holders",
	"redis_kills":         "times Redis was killed",
	"lock_acquired":       "locks taken",
	"lock_acquired_after": "locks taken after the lock service was back",
	"lock_busy":           "attempts to take a lock that someone else had",
	"lock_timed_out":      "waits for a lock that were given up",
	"lock_lost":           "holders that noticed that their lock was gone",
	"guard_tripped":       "times the last guard, a CHECK of the table or the schema, refused a write",
	"retried":             "transactions that ran again",
	"degraded":            "purchases with the row lock alone, Redis being unreachable",
	"bypassed":            "purchases with the row lock alone, the lock having stayed busy",
	"shed":                "purchases refused for lack of a lock, too many going on without one",
	"ambiguous":           "COMMITs that got no answer",
	"resolved":            "and that were decided by the same key",
	"fence_refused":       "writes refused because somebody with a newer fence had been there",
	"rightful_refused":    "… although nobody was late: rightful holders",
	"unavailable":         "requests refused because the lock service, or the outside, did not answer",
	"swept":               "holds that replicas found over and ended",
	"late_writes":         "packets delivered after a newer holder had been there",
	"late_revoked":        "of these, from a replica that did not know yet that its lease was revoked",
	"late_stopped":        "of these, from a replica that stood still until its lease was over",
	"moved":               "transfers that moved money",
	"short":               "requests refused for lack of funds",
	"late_refused":        "of these, refused by the guard",
	"late_committed":      "of these, committed",
	"pauses":              "times a replica was stopped for longer than its lease",
	"leases_revoked":      "leases revoked by an operator",
	"elections":           "new leaders of the lock service, or new primaries",
	"members_killed":      "members of the lock service killed",
	"quorum_losses":       "times the lock service lost its quorum",
	"pg_restarts":         "times PostgreSQL was stopped at once and started again",
	"commits_cut_before":  "connections cut before their COMMIT reached the server",
	"commits_cut_after":   "connections cut after their COMMIT reached the server",
	"holds_posted":        "holds that were posted",
	"holds_voided":        "holds that were voided",
	"holds_expired":       "holds that expired",
	"conflict":            "transactions that were refused because of another one",
	"transient":           "transactions that were lost for another reason, such as their primary",
	"expired":             "of these, ended by the server: they had been open for too long",
	"outlived":            "pauses in which the server ended the transaction of who stood still",
	"step_downs":          "primaries that were told to step down",
	"primary_pauses":      "primaries that stood still until another was elected",
	"primary_kills":       "primaries killed with writes that no other member had",
	"rolled_back":         "documents that a killed primary had to take back",
	"line_full":           "requests refused because too many waited for the wallet",
	"credits":             "credits that were done",
	"debits":              "debits that were done",
	"payments":            "payments that were done",
	"keys_shared":         "requests refused because their key had been used for another one",
	"asked":               "questions to the outside",
	"asked_again":         "of these, more than there are credits",
	"overheard":           "transactions whose every statement was heard on the wire",
	"mongo_clients":       "connections of the replicas to MongoDB when the load was over",
	"commits_cut":         "connections cut when their commit had been delivered",
	"commits_failed":      "commits that were applied and answered with an error",
}

// explain says what a number of the evidence counts.
func explain(name string) string {
	if step, at := strings.CutPrefix(name, "crash_"); at {
		return "replicas that killed themselves at " + step
	}
	return evidenceMeans[name]
}
