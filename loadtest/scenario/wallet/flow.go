// SPDX-License-Identifier: MIT

// Package wallet is the flow of money in MongoDB: clients send bursts of operations at the
// same moment. Each burst has credits and debits of one hot wallet, payments in both directions
// between neighbours in a ring of eight wallets, and a client that uses one key for two
// wallets. Owners of single wallets send in between. For each credit the replicas call a bonus
// service, which records every request. No update may be lost, and a bonus must be
// in a balance exactly if its credit was committed.
//
// Owners also read their wallets, twice as often. One operation in twenty is abandoned after
// "busy"; in each burst two clients use the same key. One key in forty each is reused, for another
// amount, or for another kind of operation. For every thirty operations there is one request that
// credits, debits, pays from or reads another client's wallet, names a wallet that does not exist, or
// pays a wallet from itself.
package wallet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/mongofault"
	"shop/loadtest/judge"
	"shop/loadtest/scenario/money"
	"shop/loadtest/site"
	"shop/loadtest/traffic"
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

// Environment connects the flow to the servers that its replicas use.
type Environment struct {
	// Mongo returns the URL of a MongoDB server (a replica set) on which the database of a
	// scenario can be created.
	Mongo func(loadtest.Scenario) (string, error)
	// Members compares the members of the replica set, after all replicas have been
	// stopped. nil: not checked.
	Members func(ctx context.Context, s loadtest.Scenario, database string) (Members, error)
	// WireReport returns what the proxies in front of MongoDB have seen. May be nil.
	WireReport func(loadtest.Scenario) WireReport
}

// Stores are the stores of a trial of this flow, besides PostgreSQL.
type Stores struct {
	Mongo string // URL of its database
	Bonus string // URL of its bonus service

	db      *site.Mongo
	bonus   *bonus.Service
	clients int64 // connections of the replicas to MongoDB, after the load
}

// Of returns the stores of a trial.
func Of(t *loadtest.Trial) *Stores { return t.State.(*Stores) }

// evidence describes the numbers of the report.
var evidence = map[string]string{
	"drift":             wallet.Invariants.Numbers[0].Means,
	"lock_conflicts":    "locks that MongoDB refused because another transaction held them, as seen by the proxies",
	"transactions_open": "transactions open at a primary when it was stopped or stepped down, by its own count",
	"conflict":          "transactions aborted because of another one",
	"transient":         "transactions aborted for another reason, such as the loss of the primary",
	"expired":           "of these, aborted by the server after their time limit",
	"outlived":          "pauses in which the server ended the transaction of the stopped replica",
	"step_downs":        "primaries that stepped down on command",
	"primary_pauses":    "primaries stopped until another was elected",
	"primary_kills":     "primaries killed with writes that no other member had",
	"members_killed":    "members of the replica set killed and started again",
	"rolled_back":       "documents that a killed primary rolled back",
	"queue_full":        "requests refused because too many others waited for the wallet",
	"credits":           "credits executed",
	"debits":            "debits executed",
	"payments":          "payments executed",
	"short":             "requests refused for lack of funds",
	"keys_shared":       "requests refused because another request had used their key",
	"asked":             "requests to the bonus service",
	"asked_again":       "of these, more than there are credits",
	"together":          "transactions that answered several requests, by the times of the operations",
	"transactions_seen": "transactions of which a proxy saw every statement",
	"mongo_clients":     "connections of the replicas to MongoDB after the load",
	"commits_cut":       "connections cut after their commit was delivered",
	"commits_failed":    "commits that were applied but answered with an error",
}

// New returns the flow of wallets.
func New(env Environment) *loadtest.Flow {
	f := &loadtest.Flow{
		Name: "wallet", Number: "drift", During: "M1-DURING",
		Plan:      NewPlan,
		Open:      env.open,
		Watch:     watch,
		FollowUp:  followUp,
		Postcheck: spend,
		Audit:     env.audit,
		Linear:    linearize,
		Steps:     loadtest.StepsOf(wallet.Steps()),
		Batch:     loadtest.StepsOf([]wallet.Step{wallet.AfterGuard, wallet.AfterCall, wallet.BeforeCommit, wallet.AfterCommit, wallet.AfterGuard, wallet.BeforeCommit}),
		Faults:    faults,
		Timing: loadtest.Timing{
			Slower:       2,               // a transaction that collides repeats its work
			ControlGrace: 2 * time.Second, // a control may leave keys undecided after too many collisions
			Long:         []string{"inc/none", "lockid/none"},
			Quick:        []string{"naive/none", "txn/none", "lockid/none", "lockid/commit-unknown"},
		},
		Answers: loadtest.Answers{
			Stored:  []string{money.Short},
			Moments: map[traffic.Action]string{Credit: "created_at", Debit: "created_at", Pay: "created_at"},
		},
		Counted: []string{"retried", "conflict", "transient", "expired", "ambiguous", "resolved", "guard_tripped", "queue_full", "unavailable"},
		Invariants: slices.Concat(wallet.Invariants.Invariants, []invariant.Invariant{
			{Code: "M1-DURING", Name: "money-conserved-during", Means: "M1 in every sample while the load runs; no balance is below 0, and every balance is the sum of its entries"},
			{Code: "M4", Name: "members-agree", Means: "all members of the replica set have the same data, and nothing that was acknowledged is rolled back"},
			wallet.SideEffects,
			{Code: "W-WIRE", Name: "transaction-protocol", Means: "on the wire, each transaction begins with a lock under a new lockId, no statement is outside of a transaction, and none is committed after an error"},
			{Code: "I-RIGHT", Name: "authorization", Means: "no request is refused except for lack of funds, a key that was used before, or another client's wallet"},
			money.AllSpendable,
		}),
		Evidence: evidence,
		Shown: money.Shown("the schema's balance >= 0",
			"clients who send bursts at the same moment: they credit and debit one wallet, pay each other in both directions, use one key for two wallets, read in between, and send forbidden requests",
			func(p traffic.Plan) string {
				return fmt.Sprintf("%d operations by %d clients on %d wallets", len(p.Load()), p.Clients, len(money.Accounts(p)))
			}, summary),
	}
	// The controls must be violated. naive loses updates, and M2 detects each of them.
	// (M1 does not: it is a single sum, and a payer and a payee may lose the same amount.) The
	// other controls keep correct books, but call the bonus service in vain.
	f.Controls = []loadtest.Scenario{
		f.Control("naive", loadtest.NoFault, []string{"M3"}, "M2"),
		f.Control("txn", loadtest.NoFault, kept, "W-SIDE"),
		f.Control("constant-lock", loadtest.NoFault, kept, "W-SIDE"),
		f.Control("lock-late", loadtest.NoFault, kept, "W-SIDE"),
	}
	cells.Add(f)
	f.Faults = withSet(f.Faults)
	return f
}

// failOverTime is how long a replica set takes to notice that its primary is gone and to
// elect another, and until requests that waited for the old primary have timed out.
const failOverTime = 3 * time.Second

// kept lists the invariants that hold in spite of the mistakes of the controls with a transaction.
var kept = []string{"M1", "M1-DURING", "M2", "M3", "I-ONCE", "I-REJ"}

var outlived = loadtest.Need{Evidence: "outlived", Why: "the server ended no transaction of a stopped replica"}

var (
	failOver = loadtest.Need{Evidence: "elections", Why: "no other primary was elected"}
	// A transaction of inc is so short that none may be open at that moment.
	open = loadtest.Need{Evidence: "transactions_open", Not: "inc", Why: "no transaction was open at a primary when it failed"}
	seen = loadtest.Need{Evidence: "mongo_clients", Why: "MongoDB showed no connection of a replica, so that the end of the last one could not be awaited"}
)

// faults lists the faults of the wallets' store and replicas: how each is made, and the evidence required.
//
// A process that dies while it holds a wallet's lock leaves the wallet locked until the server
// ends its transaction, and an election takes seconds. Stretch leaves time to catch up with
// the requests of that time.
//
// A request resolves a commit of unknown result itself. If its time ends first, it is answered as
// unknown, and the client's next request with the same key decides it. I-LIVE checks that
// every key is decided. The counts alone do not show that, since a request may be left in
// doubt several times before it is resolved once.
var faults = []loadtest.FaultSpec{
	{Fault: loadtest.NoFault, Setup: loadtest.Setup{Proxied: true}, Needs: []loadtest.Need{
		{Evidence: "credits", Expect: loadtest.Safe, Why: "nothing was credited"},
		{Evidence: "debits", Expect: loadtest.Safe, Why: "nothing was debited"},
		{Evidence: "payments", Expect: loadtest.Safe, Why: "no payment was executed"},
		{Evidence: "short", Expect: loadtest.Safe, Why: "no wallet was short of money"},
		{Evidence: "keys_shared", Expect: loadtest.Safe, Why: "no key was used for two wallets"},
		{Evidence: "replayed", Expect: loadtest.Safe, Why: "no decided key was sent again"},
		{Evidence: "transactions_seen", Expect: loadtest.Safe, Why: "no statement to MongoDB was recorded"},
		{Evidence: "lock_conflicts", Of: "lockid", Why: "no transaction was refused at the lock"},
	}},
	{Fault: loadtest.Pause, Store: "mongo", Least: 8, Slower: 2, Setup: loadtest.Setup{
		Guard:    5, // it must hit a transaction between lock and commit
		Lifetime: time.Second, Inject: pauseInTransaction,
	}, Needs: []loadtest.Need{
		{Evidence: "pauses", Why: "no replica was paused"},
		outlived,
	}},
	{Fault: StepDown, Store: "mongo", Stretch: 7, Recovery: failOverTime, Setup: ofSet(func(set []fault.Member) fault.Fault {
		return mongofault.StepDown{Set: set, Times: 2}
	}), Needs: []loadtest.Need{failOver, open}},
	{Fault: PrimaryPause, Store: "mongo", Stretch: 6, Recovery: failOverTime, Setup: ofSet(func(set []fault.Member) fault.Fault {
		return mongofault.PrimaryPause{Set: set, Times: 1}
	}), Needs: []loadtest.Need{failOver, open}},
	// In the last half second of the primary no write reached a majority.
	{Fault: PrimaryKill, Store: "mongo", Stretch: 7, Recovery: failOverTime, Setup: ofSet(func(set []fault.Member) fault.Fault {
		return mongofault.PrimaryKill{Set: set, Times: 1}
	}), Needs: []loadtest.Need{
		failOver,
		{Evidence: "rolled_back", Why: "the killed primary rolled nothing back: it had no write that no other member had"},
	}},
	{Fault: CommitUnknown, Store: "mongo", Slower: 2, Setup: loadtest.Setup{Proxied: true, Inject: func(servers loadtest.Servers, _ *loadtest.Trial) (fault.Fault, error) {
		return mongofault.CommitUnknown{Proxies: servers.MongoProxies(), Every: 100 * time.Millisecond, Phase: 700 * time.Millisecond}, nil
	}}, Needs: []loadtest.Need{
		{Evidence: "commits_cut", Why: "no connection was cut after its commit"},
		{Evidence: "commits_failed", Why: "no commit was answered with an error although it was applied"},
		{Evidence: "decided_after_cut", Why: "no key whose commit was left in doubt was decided"},
	}},
	// There is time to catch up after each kill, as under Crash: at a lower rate few batches would have several requests. Each
	// pause hits a batch, so the wallets with most load are held up each time.
	loadtest.CombinerKilledSpec().At(14, 0, 2),
	loadtest.CombinerPausedSpec(outlived).At(20, 0, 2).With(loadtest.Setup{Guard: 25, Lifetime: time.Second, StopInBatch: true, Inject: pauseInTransaction}),
	loadtest.HangUpSpec(25),
	loadtest.NemesisSpec(2*failOverTime, 2, loadtest.Setup{Proxied: true}),
	loadtest.AllKilledSpec(loadtest.AllKilled, 2*failOverTime, 12, 2, loadtest.Setup{Mongo: loadtest.MongoThree}),
	loadtest.CrashSpec(loadtest.Need{Evidence: "cut_off", Why: "no request was cut off by a kill"}).At(0, 8, 0),
}

var errNoMongo = errors.New("no MongoDB: the environment names no server")

// open creates a MongoDB database and a bonus service for a trial; closing removes both.
func (env Environment) open(ctx context.Context, t *loadtest.Trial) (closing func(), err error) {
	if env.Mongo == nil {
		return nil, errNoMongo
	}
	server, err := env.Mongo(t.Scenario)
	if err != nil {
		return nil, err
	}
	db, err := site.OpenMongo(server, t.Prefix)
	if err != nil {
		return nil, err
	}
	service, err := bonus.Serve()
	if err != nil {
		db.Close(ctx, t.Keep())
		return nil, fmt.Errorf("bonus service: %w", err)
	}
	t.State = &Stores{Mongo: db.URL, Bonus: service.URL(), db: db, bonus: service}
	return func() {
		_ = service.Close()
		db.Close(ctx, t.Keep())
	}, nil
}

// Figures counts the connections to all members of a trial's MongoDB, and the open transactions.
func Figures(ctx context.Context, t *loadtest.Trial, idle map[string]int64) ([]loadtest.Figure, error) {
	open, transactions, err := Of(t).db.Figures(ctx)
	return []loadtest.Figure{
		{Name: "MongoDB: connections", After: open - idle["mongo"], Slack: 10},
		{Name: "MongoDB: open transactions", After: transactions},
	}, err
}

// watch samples all wallets and all entries, each time in one snapshot.
func watch(ctx context.Context, t *loadtest.Trial) ([]judge.Sample, error) {
	return sample(ctx, Of(t).db.Database, money.Accounts(t.Plan), t.Look)
}

// walletNow yields the balance and the sum of the entries of each wallet, even of a wallet that has
// only entries.
const walletNow = `
{"$project": {"says": "$balance"}},
{"$unionWith": {"coll": "wallet_entries", "pipeline": [{"$project": {"_id": "$wallet", "moved": "$delta"}}]}},
{"$group": {"_id": "$_id", "says": {"$sum": "$says"}, "moved": {"$sum": "$moved"}}}`

// sample compares the balances with the entries and the plan's openings.
func sample(ctx context.Context, db *mongo.Database, opened []money.Account, clock func() time.Duration) ([]judge.Sample, error) {
	return judge.Watch(ctx, clock, func() ([]judge.Level, error) {
		var wallets []struct {
			ID          bson.Binary `bson:"_id"`
			Says, Moved int64
		}
		if err := wallet.Aggregate(ctx, db, "wallets", walletNow, &wallets); err != nil {
			return nil, err
		}
		missing := map[string]int64{} // the plan's openings of wallets that were not seen yet
		for _, a := range opened {
			missing[string(a.ID[:])] = a.Opening
		}
		balances, drift, below := judge.Level{Name: "balances"}, judge.Level{Name: money.DriftLevel}, judge.Level{Name: "wallets below 0"}
		add := func(says, is int64) {
			balances.Says, balances.True = balances.Says+says, balances.True+is
			drift.Says += max(says-is, is-says)
		}
		for _, w := range wallets {
			add(w.Says, missing[string(w.ID.Data)]+w.Moved)
			delete(missing, string(w.ID.Data))
			if w.Says < 0 {
				below.Says++
			}
		}
		for _, opening := range missing {
			add(0, opening)
		}
		return []judge.Level{balances, drift, below}, nil
	})
}

// summary counts the operations of the load, without the postcheck's.
func summary(r loadtest.Result) string {
	did := tally(r.Records[:r.Loaded])
	parts := []string{
		fmt.Sprintf("%d credits, %d debits, %d payments", did["credits"], did["debits"], did["payments"]),
		fmt.Sprintf("%d refused for lack of funds", did["short"]),
	}
	if n := r.Evidence["asked_again"]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d more calls of the bonus service than credits", n))
	}
	if n := r.Violations["drift"]; n > 0 {
		parts = append(parts, fmt.Sprintf("balances are off by %d in all", n))
	}
	return strings.Join(parts, ", ")
}

// tally counts the executed operations, and the refusals by reason.
func tally(records []traffic.Record) map[string]int64 {
	done := map[traffic.Action]string{Credit: "credits", Debit: "debits", Pay: "payments"}
	counts := map[string]int64{}
	for _, r := range records {
		switch {
		case r.Reads || len(r.Refusals) > 0:
		case r.Outcome == traffic.OK:
			counts[done[r.Action]]++
		case r.Refused(money.Short):
			counts["short"]++
		case r.Refused(traffic.KeyReused):
			counts["keys_shared"]++
		}
	}
	return counts
}

// spend checks that all money can be spent, and no more, and that a key stays
// with its first use. It debits each wallet by its whole balance, which must succeed,
// and then by one unit more, which must be refused. The decided key of that refusal must
// not be accepted for another wallet.
func spend(ctx context.Context, t *loadtest.Trial) invariant.Findings {
	// If it finds none while the replicas are alive, the end of the last connection cannot be awaited, and the run is
	// inconclusive.
	Of(t).clients, _ = Of(t).db.Clients(ctx)
	wallets := money.Accounts(t.Plan)
	last := len(wallets) - 1 // has the same client as the one before, so a key could be accepted for both
	findings := money.Postcheck(ctx, t, "wallet", 1, func(ctx context.Context, i int, row []money.Account) []string {
		w := row[0]
		wrong := emptyWallet(ctx, t.Run, i, wallets, w)
		switch {
		case wrong == "" && i == 1:
			wrong = trespass(ctx, t.Run, wallets, wallets[0], w)
		case wrong == "" && i == last:
			wrong = reuseKey(ctx, t.Run, wallets, wallets[last-1], w)
		}
		return []string{wrong}
	})
	t.Offend(ctx, offences(wallets, "", 0, 1, uuid.New()), attacks)
	return findings
}

// emptyWallet spends a wallet's balance and returns what went wrong, "" if nothing did.
func emptyWallet(ctx context.Context, run *traffic.Run, replica int, wallets []money.Account, w money.Account) string {
	return money.SpendAll(ctx, run, replica, []money.Account{w}, "/v1/wallets/", "balance", func(_ int, key string, amount int64) *traffic.Intent {
		return intend(wallets, key, Debit, Move{From: w.ID, Amount: amount})
	})[0]
}

// trespass sends a payment from another client's wallet to the own one.
func trespass(ctx context.Context, run *traffic.Run, wallets []money.Account, own, other money.Account) string {
	i := intend(wallets, "trespass-"+other.ID.String(), Pay, Move{From: other.ID, To: own.ID, Amount: 1}).Denied("forbidden")
	i.Client = own.Client
	if r := run.Settle(ctx, 0, i); r.Last().Problem != "forbidden" {
		return "a payment by another client ended as " + r.Ended()
	}
	return ""
}

// reuseKey sends a debit of another wallet under a decided key.
func reuseKey(ctx context.Context, run *traffic.Run, wallets []money.Account, decided, other money.Account) string {
	again := intend(wallets, "reused-"+other.ID.String(), Debit, Move{From: other.ID, Amount: 1})
	again.SharedKey = money.OneMore(decided)
	if r := run.Settle(ctx, 0, again); r.Last().Problem != traffic.KeyReused {
		return fmt.Sprintf("a key that was used for wallet %s ended as %s", decided.ID, r.Ended())
	}
	return ""
}
