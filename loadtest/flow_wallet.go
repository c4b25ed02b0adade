package loadtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"shop/locking/invariant"
	"shop/wallet"
	"shop/wallet/bonus"
)

// Wallet is the flow of money in MongoDB: no update is lost, and nobody outside
// is asked in vain.
var Wallet = Flow{
	Name: walletFlow, Number: "drift", During: "M1-DURING", Guard: "the schema's balance >= 0", Mongo: true,
	Plan: NewWalletPlan,
	Crowd: func(p Plan) string {
		return fmt.Sprintf("%d operations of %d clients on %d wallets", len(p.Intents), p.Clients, len(p.Wallets))
	},
	Watch:    watchWallets,
	Finale:   spendWallets,
	Audit:    auditWallets,
	Void:     voidWallets,
	Controls: walletControls,
	Faults:   map[string][]Fault{"mongo": {StepDown, PrimaryPause, PrimaryKill, CommitUnknown, Pause}},
	Slower:   2, // who collides here has worked in vain, and begins again
	Least:    map[Fault]int{Pause: 8},
	// Who dies with a wallet locked leaves it so until the server ends his
	// transaction, and an election takes seconds: what comes meanwhile has to be
	// caught up with.
	Stretch:  map[Fault]int{StepDown: 7, PrimaryPause: 6, PrimaryKill: 7, Crash: 8},
	Recovery: map[Fault]time.Duration{StepDown: failOverTime, PrimaryPause: failOverTime, PrimaryKill: failOverTime},
	Quick: func(s Scenario) bool {
		return slices.Contains([]string{
			"naive/none", "txn/none", "lockid/none", "lockid/commit-unknown",
		}, s.Strategy+"/"+string(s.Fault))
	},
	Told: toldOfWallets,
	Plot: Result.Drift,
	Words: Words{
		Claim:  "no update was lost and no bonus given in vain",
		Crowd:  "clients who credit and debit one wallet at the same moment, again and again, pay each other in both directions, and use one key for two wallets",
		Done:   "done",
		Levels: "Minor units by which balances differ from what their entries add up to. It must be 0 all along.",
		Note:   "Drift is money that balances have, or lack, and no entry accounts for.",
	},
}

// failOverTime is until a replica set has noticed that its primary is gone and
// has elected another, and those who were waiting for the old one have given up.
const failOverTime = 3 * time.Second

// walletKept is what the mistakes of the controls with a transaction do not touch.
var walletKept = []string{"M1", "M1-DURING", "M2", "M3", "I-ONCE", "I-REJ"}

// walletControls are the scenarios that must be violated. naive loses updates,
// which M2 sees in each of them. (M1 does not: a payer and a payee may lose
// alike, and it is but one number.) The others keep the books, and ask in vain.
var walletControls = []Scenario{
	walletControl("naive", []string{"M3"}, "M2"),
	walletControl("txn", walletKept, "W-SIDE"),
	walletControl("constant-lock", walletKept, "W-SIDE"),
	walletControl("lock-late", walletKept, "W-SIDE"),
}

// walletControl is one that may give up on a key, having collided too often.
func walletControl(strategy string, keeps []string, breaks ...string) Scenario {
	s := control(walletFlow, strategy, NoFault, keeps, breaks...)
	s.Patience = 2 * time.Second
	return s
}

// toldOfWallets counts the operations of the load; those of the finale are none of it.
func toldOfWallets(r Result) string {
	did := tally(r.Records[:r.Requests])
	parts := []string{
		fmt.Sprintf("%d credits, %d debits, %d payments", did["credits"], did["debits"], did["payments"]),
		fmt.Sprintf("%d refused for lack of funds", did["short"]),
	}
	if n := r.Evidence["asked_again"]; n > 0 {
		parts = append(parts, fmt.Sprintf("the outside was asked %d times more than there are credits", n))
	}
	if n := r.Violations["drift"]; n > 0 {
		parts = append(parts, fmt.Sprintf("balances are off by %d in all", n))
	}
	return strings.Join(parts, ", ")
}

// tally counts what was done, and why not.
func tally(records []Record) map[string]int64 {
	done := map[Action]string{Credit: "credits", Debit: "debits", Pay: "payments"}
	counts := map[string]int64{}
	for _, r := range records {
		switch {
		case r.Outcome == OK:
			counts[done[r.Action]]++
		case r.refused("insufficient-funds"):
			counts["short"]++
		case r.refused(keyReused):
			counts["keys_shared"]++
		}
	}
	return counts
}

// auditWallets asks MongoDB where the money is, its members whether they agree,
// and the outside who asked it.
func auditWallets(ctx context.Context, r *run, records []Record) (a Audited, err error) {
	db, err := mongoDatabase(r.stores.Mongo)
	if err != nil {
		return a, err
	}
	defer func() { _ = db.Client().Disconnect(context.WithoutCancel(ctx)) }()
	if err := waitMongoQuiet(ctx, db, r.prefix, quietWait); err != nil {
		return a, err
	}
	members, err := r.compareMembers(ctx) // before there is something in the database that no replica put there
	if err != nil {
		return a, err
	}
	if err := LoadTold(ctx, db, r.plan.Wallets, records, r.clients); err != nil {
		return a, err
	}
	if a.Findings, err = invariant.Run(ctx, slices.Concat(wallet.Invariants, ToldChecks), wallet.Pipelines(db)); err != nil {
		return a, err
	}
	a.Findings.Add("I-RIGHT", deniedRight(records)...)
	a.Findings.Add("I-ONCE", sharedTwice(records)...)
	a.Findings.Add("I-SPENT", wronglyShort(records[:r.loaded], r.plan.Wallets)...)
	if r.proof.Members != nil {
		a.Findings.Add("M4", members.broken(records)...)
	}
	credits, err := storedCredits(ctx, db)
	if err != nil {
		return a, err
	}
	calls := r.bonus.Calls()
	a.Findings.Add("W-SIDE", side(r.scenario, calls, credits, lateOperations(records))...)
	a.Evidence = tally(records[:r.loaded])
	answered := slices.DeleteFunc(slices.Clone(calls), func(c bonus.Call) bool { return c.Refused })
	a.Evidence["asked"], a.Evidence["asked_again"] = int64(len(answered)), int64(len(answered)-len(credits))
	a.Evidence["mongo_clients"] = r.mongoClients
	if r.proof.Overheard != nil {
		heard := r.proof.Overheard(r.scenario)
		a.Evidence["overheard"] = heard.Transactions
		if heard.Transactions > 0 || len(heard.Breaches) > 0 { // naive has no transactions
			a.Findings.Add("W-WIRE", heard.Breaches...)
		}
	}
	all, err := wallet.AddUp(ctx, db, plannedOpenings)
	a.Number = all.Drift
	return a, err
}
