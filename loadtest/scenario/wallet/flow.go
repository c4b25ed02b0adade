// Package wallet is the flow of money in MongoDB: clients who send at the same moment,
// again and again: credits and debits of one hot wallet, a ring of eight whose owners pay
// each other in both directions, owners who have a wallet to themselves, and a client that
// uses one key for two wallets. Replicas ask a bonus service what each credit gets on top;
// it records every request. No update may be lost, and no bonus given in vain.
package wallet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"shop/loadtest"
	"shop/locking/invariant"
	"shop/wallet"
	"shop/wallet/bonus"
)

// The faults of wallet's store.
const (
	StepDown      loadtest.Fault = "step-down"
	PrimaryPause  loadtest.Fault = "primary-pause"
	PrimaryKill   loadtest.Fault = "primary-kill"
	CommitUnknown loadtest.Fault = "commit-unknown"
)

// Environment is what the flow needs of the servers that its replicas use.
type Environment struct {
	// Mongo is the URL of a MongoDB server (a replica set) on which a scenario's database
	// may be made.
	Mongo func(loadtest.Scenario) (string, error)
	// Members says what differs between the members of the replica set, when all
	// replicas have been stopped. May be nil: not checked.
	Members func(ctx context.Context, s loadtest.Scenario, database string) (Members, error)
	// WireReport is what the proxies in front of MongoDB saw. May be nil.
	WireReport func(loadtest.Scenario) WireReport
}

// evidence is what a number of the report counts.
var evidence = map[string]string{
	"drift":          "minor units by which balances differ from their openings and their entries",
	"conflict":       "transactions that were refused because of another one",
	"transient":      "transactions that were lost for another reason, such as their primary",
	"expired":        "of these, ended by the server: they had been open for too long",
	"outlived":       "pauses in which the server ended the transaction of the stopped replica",
	"step_downs":     "primaries that were told to step down",
	"primary_pauses": "primaries that stood still until another was elected",
	"primary_kills":  "primaries killed with writes that no other member had",
	"rolled_back":    "documents that a killed primary rolled back",
	"line_full":      "requests refused because too many waited for the wallet",
	"credits":        "credits that were done",
	"debits":         "debits that were done",
	"payments":       "payments that were done",
	"short":          "requests refused for lack of funds",
	"keys_shared":    "requests refused because their key had been used for another one",
	"asked":          "requests to the bonus service",
	"asked_again":    "of these, more than there are credits",
	"overheard":      "transactions whose every statement was seen by a proxy",
	"mongo_clients":  "connections of the replicas to MongoDB when the load was over",
	"commits_cut":    "connections cut when their commit had been delivered",
	"commits_failed": "commits that were applied and answered with an error",
}

// New is the flow of wallets.
func New(env Environment) *loadtest.Flow {
	f := &loadtest.Flow{
		Name: "wallet", Number: "drift", During: "M1-DURING", Guard: "the schema's balance >= 0",
		Plan: NewPlan,
		Workload: func(p loadtest.Plan) string {
			return fmt.Sprintf("%d operations of %d clients on %d wallets", len(p.Intents), p.Clients, len(Seeds(p)))
		},
		Open:         env.open,
		Watch:        watch,
		Postcheck:    spend,
		Audit:        env.audit,
		Inconclusive: inconclusive,
		Faults: []loadtest.StoreFaults{
			{Store: "mongo", Faults: []loadtest.Fault{loadtest.Pause, StepDown, PrimaryPause, PrimaryKill, CommitUnknown}},
		},
		Slower: 2, // a transaction that collides has worked in vain, and begins again
		Least:  map[loadtest.Fault]int{loadtest.Pause: 8},
		// A process that dies with a wallet locked leaves it so until the server ends its
		// transaction, and an election takes seconds: the requests of that time have to be
		// caught up with.
		Stretch:  map[loadtest.Fault]int{StepDown: 7, PrimaryPause: 6, PrimaryKill: 7, loadtest.Crash: 8},
		Recovery: map[loadtest.Fault]time.Duration{StepDown: failOverTime, PrimaryPause: failOverTime, PrimaryKill: failOverTime},
		Quick: func(s loadtest.Scenario) bool {
			return slices.Contains([]string{
				"naive/none", "txn/none", "lockid/none", "lockid/commit-unknown",
			}, s.Strategy+"/"+string(s.Fault))
		},
		Counters: map[string]map[string]string{"wallet_events_total": {
			"retried": "retried", "conflict": "conflict", "transient": "transient", "expired": "expired",
			"ambiguous": "ambiguous", "resolved": "resolved", "guard_tripped": "guard_tripped",
			"line_full": "line_full", "unavailable": "unavailable",
		}},
		Invariants: slices.Concat(wallet.Invariants.Invariants, []invariant.Invariant{
			{Code: "M1-DURING", Name: "money-conserved-during", Means: "M1 in every sample while the load runs; no balance is below 0, and all are what their entries say"},
			{Code: "M4", Name: "members-agree", Means: "all members of the replica set are the same, and nothing that was acknowledged is rolled back"},
			{Code: "W-SIDE", Name: "side-effects", Means: "the bonus service applies an operation once, what it gave is in a balance exactly if it was committed, and without a fault no request asks twice, unless it came to a time limit"},
			{Code: "W-WIRE", Name: "transaction-protocol", Means: "on the wire, each transaction begins with its lock, which is new each time, nothing is done outside of one, and none is committed behind an error"},
			{Code: "I-RIGHT", Name: "authorization", Means: "no request is refused for another reason than a lack of funds, a key that was used before, or a wallet of another client"},
			{Code: "I-SPENT", Name: "all-spendable", Means: "all that is available can be spent, and not one more; an account that has enough for all is never refused"},
		}),
		Evidence: evidence,
		Summary:  summary,
		Curves:   []loadtest.Curve{loadtest.Drift},
		Words: loadtest.Words{
			Claim:    "no update was lost and no bonus given in vain",
			Workload: "clients who credit and debit one wallet at the same moment, again and again, pay each other in both directions, and use one key for two wallets",
			Done:     "done",
			Levels:   "Minor units by which balances differ from what their entries add up to. It must be 0 all along.",
			Note:     "Drift is money that balances have, or lack, and no entry accounts for.",
		},
	}
	// The controls must be violated. naive loses updates, which M2 sees in each of them.
	// (M1 does not: a payer and a payee may lose alike, and it is but one number.) The
	// others keep the books, and ask the bonus service in vain.
	f.Controls = []loadtest.Scenario{
		control(f, "naive", []string{"M3"}, "M2"),
		control(f, "txn", kept, "W-SIDE"),
		control(f, "constant-lock", kept, "W-SIDE"),
		control(f, "lock-late", kept, "W-SIDE"),
	}
	return f
}

// failOverTime is until a replica set has noticed that its primary is gone and
// has elected another, and requests that waited for the old one have given up.
const failOverTime = 3 * time.Second

// kept is what the mistakes of the controls with a transaction do not touch.
var kept = []string{"M1", "M1-DURING", "M2", "M3", "I-ONCE", "I-REJ"}

// control is one that may give up on a key, having collided too often.
func control(f *loadtest.Flow, strategy string, keeps []string, breaks ...string) loadtest.Scenario {
	s := f.Control(strategy, loadtest.NoFault, keeps, breaks...)
	s.Patience = 2 * time.Second
	return s
}

// summary counts the operations of the load, without those of the postcheck.
func summary(r loadtest.Result) string {
	did := tally(r.Records[:r.Requests])
	parts := []string{
		fmt.Sprintf("%d credits, %d debits, %d payments", did["credits"], did["debits"], did["payments"]),
		fmt.Sprintf("%d refused for lack of funds", did["short"]),
	}
	if n := r.Evidence["asked_again"]; n > 0 {
		parts = append(parts, fmt.Sprintf("the bonus service was asked %d times more than there are credits", n))
	}
	if n := r.Violations["drift"]; n > 0 {
		parts = append(parts, fmt.Sprintf("balances are off by %d in all", n))
	}
	return strings.Join(parts, ", ")
}

// tally counts what was done, and why not.
func tally(records []loadtest.Record) map[string]int64 {
	done := map[loadtest.Action]string{Credit: "credits", Debit: "debits", Pay: "payments"}
	counts := map[string]int64{}
	for _, r := range records {
		switch {
		case r.Outcome == loadtest.OK:
			counts[done[r.Action]]++
		case r.Refused("insufficient-funds"):
			counts["short"]++
		case r.Refused(keyReused):
			counts["keys_shared"]++
		}
	}
	return counts
}

// audit reads from MongoDB where the money is, compares its members, and asks the bonus
// service which requests it got.
func (env Environment) audit(ctx context.Context, t *loadtest.Trial, records []loadtest.Record) (a loadtest.Audited, err error) {
	own := Of(t)
	db, err := mongoDatabase(own.Mongo)
	if err != nil {
		return a, err
	}
	defer func() { _ = db.Client().Disconnect(context.WithoutCancel(ctx)) }()
	if err := waitQuiet(ctx, db, t.Prefix, loadtest.QuietWait); err != nil {
		return a, err
	}
	var members Members
	if env.Members != nil { // before there is something in the database that no replica put there
		if members, err = env.Members(ctx, t.Scenario, t.Prefix); err != nil {
			return a, err
		}
	}
	if err := LoadTold(ctx, db, Seeds(t.Plan), records, t.Clients); err != nil {
		return a, err
	}
	if a.Findings, err = invariant.Run(ctx, slices.Concat(wallet.Invariants.Checks, ToldChecks), wallet.Pipelines(db)); err != nil {
		return a, err
	}
	a.Findings.Add("I-RIGHT", deniedRight(records)...)
	a.Findings.Add("I-ONCE", sharedTwice(records)...)
	a.Findings.Add("I-SPENT", wronglyShort(t.Loaded(records), Seeds(t.Plan))...)
	if env.Members != nil {
		a.Findings.Add("M4", members.broken(records)...)
	}
	credits, err := storedCredits(ctx, db)
	if err != nil {
		return a, err
	}
	calls := own.bonus.Calls()
	a.Findings.Add("W-SIDE", auditSideEffects(t.Scenario, calls, credits, lateOperations(records))...)
	a.Evidence = tally(t.Loaded(records))
	answered := slices.DeleteFunc(slices.Clone(calls), func(c bonus.Call) bool { return c.Refused })
	a.Evidence["asked"], a.Evidence["asked_again"] = int64(len(answered)), int64(len(answered)-len(credits))
	a.Evidence["mongo_clients"] = own.clients
	if env.WireReport != nil {
		seen := env.WireReport(t.Scenario)
		a.Evidence["overheard"] = seen.Transactions
		if seen.Transactions > 0 || len(seen.Breaches) > 0 { // naive has no transactions
			a.Findings.Add("W-WIRE", seen.Breaches...)
		}
	}
	all, err := wallet.AddUp(ctx, db, plannedOpenings)
	a.Number = all.Drift
	return a, err
}
