// Package wallet is the flow of money in MongoDB: clients who send at the same moment,
// again and again: credits and debits of one hot wallet, a ring of eight whose owners pay
// each other in both directions, owners who have a wallet to themselves, and a client that
// uses one key for two wallets. Replicas ask a bonus service what each credit gets on top;
// it records every request. No update may be lost, and no bonus given in vain.
//
// Beside the operations, owners read their wallets, twice as often. One operation in twenty is given up after
// "busy"; in each burst two clients use the same key. One key in forty each is used again, for another
// amount, or for another kind of operation. One request in thirty credits, debits, pays from or reads another
// client's wallet, or is about a wallet that is not there, or pays to the wallet that it takes from.
package wallet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"shop/loadtest"
	"shop/loadtest/scenario/money"
	"shop/locking/invariant"
	"shop/wallet"
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
	"drift":             "minor units by which balances differ from their openings and their entries",
	"lock_conflicts":    "locks that MongoDB refused because another transaction had them, as the proxies saw it",
	"transactions_open": "transactions open at a primary when it was stopped or told to step down, by its own count",
	"conflict":          "transactions that were refused because of another one",
	"transient":         "transactions that were lost for another reason, such as their primary",
	"expired":           "of these, ended by the server: they had been open for too long",
	"outlived":          "pauses in which the server ended the transaction of the stopped replica",
	"step_downs":        "primaries that were told to step down",
	"primary_pauses":    "primaries that stood still until another was elected",
	"primary_kills":     "primaries killed with writes that no other member had",
	"members_killed":    "members of the replica set killed and started again",
	"rolled_back":       "documents that a killed primary rolled back",
	"line_full":         "requests refused because too many waited for the wallet",
	"credits":           "credits that were done",
	"debits":            "debits that were done",
	"payments":          "payments that were done",
	"short":             "requests refused for lack of funds",
	"keys_shared":       "requests refused because their key had been used for another one",
	"asked":             "requests to the bonus service",
	"asked_again":       "of these, more than there are credits",
	"transactions_seen": "transactions whose every statement was seen by a proxy",
	"mongo_clients":     "connections of the replicas to MongoDB when the load was over",
	"commits_cut":       "connections cut when their commit had been delivered",
	"commits_failed":    "commits that were applied and answered with an error",
}

// New is the flow of wallets.
func New(env Environment) *loadtest.Flow {
	f := &loadtest.Flow{
		Name: "wallet", Number: "drift", During: "M1-DURING", Guard: "the schema's balance >= 0",
		Plan: NewPlan,
		Workload: func(p loadtest.Plan) string {
			return fmt.Sprintf("%d operations of %d clients on %d wallets", len(p.Load()), p.Clients, len(money.Accounts(p)))
		},
		Open:         env.open,
		Watch:        watch,
		FollowUp:     followUp,
		Postcheck:    spend,
		Audit:        env.audit,
		Archive:      archive,
		Linear:       linearize,
		Moments:      map[loadtest.Action]string{Credit: "created_at", Debit: "created_at", Pay: "created_at"},
		Inconclusive: inconclusive,
		Steps:        loadtest.StepsOf(wallet.Steps()),
		Cells:        cells,
		Needs:        []loadtest.Need{{Evidence: "mongo_clients", Why: "no replica was known to MongoDB by its name, so that the end of the last one could not be awaited"}},
		Faults:       faults,
		Slower:       2,               // a transaction that collides has worked in vain, and begins again
		ControlGrace: 2 * time.Second, // a control may give up on a key, having collided too often
		Long:         []string{"inc/none", "lockid/none"},
		Quick:        []string{"naive/none", "txn/none", "lockid/none", "lockid/commit-unknown"},
		Counted:      []string{"retried", "conflict", "transient", "expired", "ambiguous", "resolved", "guard_tripped", "line_full", "unavailable"},
		Invariants: slices.Concat(wallet.Invariants.Invariants, []invariant.Invariant{
			{Code: "M1-DURING", Name: "money-conserved-during", Means: "M1 in every sample while the load runs; no balance is below 0, and all are what their entries say"},
			{Code: "M4", Name: "members-agree", Means: "all members of the replica set are the same, and nothing that was acknowledged is rolled back"},
			{Code: "W-SIDE", Name: "side-effects", Means: "the bonus service applies an operation once, what it gave is in a balance exactly if it was committed (or its client gave up, told that nothing was), and without a fault no request asks twice, unless it came to a time limit"},
			{Code: "W-WIRE", Name: "transaction-protocol", Means: "on the wire, each transaction begins with its lock, which is new each time, nothing is done outside of one, and none is committed behind an error"},
			{Code: "I-RIGHT", Name: "authorization", Means: "no request is refused for another reason than a lack of funds, a key that was used before, or a wallet of another client"},
			money.AllSpendable,
		}),
		Evidence: evidence,
		Summary:  summary,
		Curves:   []loadtest.Curve{money.Drift},
		Words: loadtest.Words{
			Workload: "clients who credit and debit one wallet at the same moment, again and again, pay each other in both directions, use one key for two wallets, read meanwhile, and try what is not allowed",
			Done:     "done",
			Levels:   money.Levels,
			Note:     money.Note,
		},
	}
	// The controls must be violated. naive loses updates, which M2 sees in each of them.
	// (M1 does not: a payer and a payee may lose alike, and it is but one number.) The
	// others keep the books, and ask the bonus service in vain.
	f.Controls = []loadtest.Scenario{
		f.Control("naive", loadtest.NoFault, []string{"M3"}, "M2"),
		f.Control("txn", loadtest.NoFault, kept, "W-SIDE"),
		f.Control("constant-lock", loadtest.NoFault, kept, "W-SIDE"),
		f.Control("lock-late", loadtest.NoFault, kept, "W-SIDE"),
		f.CellControl("naive", []loadtest.Cell{{Step: string(wallet.AfterGuard), Fault: loadtest.CellFault{Kind: loadtest.CellPaused}}}, []string{"M3"}, "M2"),
	}
	return f
}

// failOverTime is until a replica set has noticed that its primary is gone and
// has elected another, and requests that waited for the old one have given up.
const failOverTime = 3 * time.Second

// kept is what the mistakes of the controls with a transaction do not touch.
var kept = []string{"M1", "M1-DURING", "M2", "M3", "I-ONCE", "I-REJ"}

// inconclusive says what must be seen of some strategies alone.
func inconclusive(s loadtest.Scenario, e map[string]int64) (reasons []string) {
	if s.Strategy == "lockid" && s.Fault == loadtest.NoFault && e["lock_conflicts"] == 0 {
		reasons = append(reasons, "no transaction was refused at the lock")
	}
	// A transaction of inc is so short that there may be none to lose at that moment.
	if s.Strategy != "inc" && (s.Fault == StepDown || s.Fault == PrimaryPause) && e["transactions_open"] == 0 {
		reasons = append(reasons, "no transaction was open at a primary when it went")
	}
	return reasons
}

var failOver = loadtest.Need{Evidence: "elections", Why: "no other primary was elected"}

// faults are those of the wallets' store and replicas, and what must be seen under each.
//
// A process that dies with a wallet locked leaves it so until the server ends its
// transaction, and an election takes seconds: the requests of that time have to be
// caught up with (Stretch).
//
// A commit of unknown result is resolved by the request itself, or, if its time is over
// first, answered as unknown, and decided by the client's next request with the same key.
// That each is, I-LIVE says. The numbers do not: a request may be left in doubt several
// times before it is resolved once.
var faults = []loadtest.FaultSpec{
	{Fault: loadtest.NoFault, Needs: []loadtest.Need{
		{Evidence: "credits", Expect: loadtest.Safe, Why: "nothing was credited"},
		{Evidence: "debits", Expect: loadtest.Safe, Why: "nothing was debited"},
		{Evidence: "payments", Expect: loadtest.Safe, Why: "no payment was done"},
		{Evidence: "short", Expect: loadtest.Safe, Why: "no wallet was short of money"},
		{Evidence: "keys_shared", Expect: loadtest.Safe, Why: "no key was used for two wallets"},
		{Evidence: "replayed", Expect: loadtest.Safe, Why: "no decided key was asked again"},
		{Evidence: "transactions_seen", Expect: loadtest.Safe, Why: "no statement to MongoDB was recorded"},
		{Evidence: "samples", Expect: loadtest.Safe, Why: "the balances were not sampled while the load ran"},
	}},
	{Fault: loadtest.Pause, Store: "mongo", Least: 8, Needs: []loadtest.Need{
		{Evidence: "pauses", Why: "no replica was paused"},
		{Evidence: "outlived", Why: "no transaction was ended by the server while its replica stood still"},
	}},
	{Fault: StepDown, Store: "mongo", Stretch: 7, Recovery: failOverTime, Needs: []loadtest.Need{failOver}},
	{Fault: PrimaryPause, Store: "mongo", Stretch: 6, Recovery: failOverTime, Needs: []loadtest.Need{failOver}},
	// Nothing that needs a majority was committed in its last half second.
	{Fault: PrimaryKill, Store: "mongo", Stretch: 7, Recovery: failOverTime, Needs: []loadtest.Need{
		failOver,
		{Evidence: "rolled_back", Why: "the killed primary had nothing to roll back: no write that only it had"},
	}},
	{Fault: CommitUnknown, Store: "mongo", Needs: []loadtest.Need{
		{Evidence: "commits_cut", Why: "no connection was cut behind its commit"},
		{Evidence: "commits_failed", Why: "no commit was answered with an error although it was applied"},
		{Evidence: "decided_after_cut", Why: "no key whose commit was left in doubt was decided"},
	}},
	loadtest.NemesisSpec(2*failOverTime, 2),
	loadtest.SoakSpec(2 * failOverTime),
	loadtest.CrashMatrixSpec(5),
	{Fault: loadtest.Crash, Stretch: 8, Needs: []loadtest.Need{{Evidence: "cut_off", Why: "no request was cut off by a kill"}}},
}

// summary counts the operations of the load, without those of the postcheck.
func summary(r loadtest.Result) string {
	did := tally(r.Records[:r.Loaded])
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
		case r.Reads || len(r.Refusals) > 0:
		case r.Outcome == loadtest.OK:
			counts[done[r.Action]]++
		case r.Refused(money.Short):
			counts["short"]++
		case r.Refused(keyReused):
			counts["keys_shared"]++
		}
	}
	return counts
}

// spend shows that all money can be spent, and no more than all of it, and
// that a key stays with what it was used for: each wallet is debited by all that
// it has, which must work, and then by one more, which must be refused; and the
// key of that, which is decided, must not do for another wallet.
func spend(ctx context.Context, t *loadtest.Trial) invariant.Findings {
	Of(t).countClients(ctx, t.Prefix)
	wallets := money.Accounts(t.Plan)
	last := len(wallets) - 1 // of one client with the one before: its key would do for both, if it did for any two
	findings := money.Postcheck(ctx, t, "wallet", 1, func(ctx context.Context, i int, row []money.Account) []string {
		w := row[0]
		wrong := emptyWallet(ctx, t.Run, i, wallets, w)
		switch {
		case wrong == "" && i == 1:
			wrong = trespass(ctx, t.Run, wallets, wallets[0], w)
		case wrong == "" && i == last:
			wrong = reuse(ctx, t.Run, wallets, wallets[last-1], w)
		}
		return []string{wrong}
	})
	offend(ctx, t)
	return findings
}

// emptyWallet says what went wrong; "" is nothing.
func emptyWallet(ctx context.Context, run *loadtest.Run, replica int, wallets []money.Account, w money.Account) string {
	return money.SpendAll(ctx, run, replica, []money.Account{w}, "/v1/wallets/", "balance", func(_ int, key string, amount int64) *loadtest.Intent {
		return intend(wallets, key, Debit, Move{From: w.ID, Amount: amount})
	})[0]
}

// trespass lets the owner of one wallet pay itself from a wallet that it does not own.
func trespass(ctx context.Context, run *loadtest.Run, wallets []money.Account, own, other money.Account) string {
	i := intend(wallets, "trespass-"+other.ID.String(), Pay, Move{From: other.ID, To: own.ID, Amount: 1}).Denied("forbidden")
	i.Client = own.Client
	if r := run.Settle(ctx, 0, i); r.Last().Problem != "forbidden" {
		return "a payment from it by another client ended as " + r.Ended()
	}
	return ""
}

// reuse sends the same request for another wallet, under the same key.
func reuse(ctx context.Context, run *loadtest.Run, wallets []money.Account, decided, other money.Account) string {
	again := intend(wallets, "reused-"+other.ID.String(), Debit, Move{From: other.ID, Amount: 1})
	again.SharedKey = money.OneMore(decided)
	if r := run.Settle(ctx, 0, again); r.Last().Problem != keyReused {
		return fmt.Sprintf("a key that was used for wallet %s ended as %s", decided.ID, r.Ended())
	}
	return ""
}

const keyReused = "idempotency-key-reused"
