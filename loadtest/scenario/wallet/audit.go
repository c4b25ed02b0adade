package wallet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"shop/loadtest"
	"shop/loadtest/scenario/money"
	"shop/locking/invariant"
	"shop/wallet"
	"shop/wallet/bonus"
)

// both puts together what clients were told of a key at a wallet, and what is
// stored under it there. Several intents may share a key, for two wallets, two kinds or two amounts.
const both = `
{"$project": {
	"of": {"client": "$client", "key": "$under", "kind": "$kind", "wallet": "$wallet", "to": "$to", "amount": "$amount"},
	"name": "$_id", "outcome": 1, "problem": 1, "sent": 1
}},
{"$unionWith": {"coll": "wallet_operations", "pipeline": [{"$project": {
	"of": {"client": "$client", "key": "$key", "kind": "$kind", "wallet": "$wallet", "to": "$to", "amount": "$amount"},
	"operation": "$_id",
	"done": {"$cond": [{"$gt": ["$refused", null]}, 0, 1]},
	"refused": {"$cond": [{"$gt": ["$refused", null]}, 1, 0]}
}}]}},
{"$group": {
	"_id": "$of", "name": {"$max": "$name"}, "outcome": {"$max": "$outcome"}, "problem": {"$max": "$problem"},
	"sent": {"$max": "$sent"}, "operation": {"$max": "$operation"}, "done": {"$sum": "$done"}, "refused": {"$sum": "$refused"}
}}`

// HistoryChecks compare what is stored with what the plan opened and with what
// clients were told. They need the collections that LoadHistory fills: a document for
// each wallet, and one for each intent.
var HistoryChecks = []invariant.Check{
	{
		// A service that raises an opening, or opens a wallet, agrees with itself.
		Name: "M1 opened", Invariant: "M1", From: "wallets",
		Means: "wallet that is not as the plan opened it, that the plan does not know, or that is gone",
		Query: `
{"$project": {"owner": 1, "currency": 1, "opening": 1}},
{"$unionWith": {"coll": "` + openedOf + `"}},
{"$group": {"_id": {"wallet": "$_id", "owner": "$owner", "currency": "$currency", "opening": "$opening"}, "n": {"$sum": 1}}},
{"$match": {"n": {"$ne": 2}}},
{"$group": {"_id": "$_id.wallet"}}`,
	},
	{
		Name: "M1 planned", Invariant: "M1", From: "wallets",
		Means: "money that is there and that the plan did not open, nor an entry account for, or the other way round",
		Query: plannedSums + `,
{"$group": {"_id": null, "says": {"$sum": "$says"}, "true": {"$sum": "$true"}}},
{"$match": {"$expr": {"$ne": ["$says", "$true"]}}},
{"$project": {"_id": {"$concat": ["off by ", {"$toString": {"$subtract": ["$says", "$true"]}}]}}}`,
	},
	{
		Name: "M2 planned", Invariant: "M2", From: "wallets",
		Means: "wallet whose balance is not what the plan opened and its entries add up to",
		Query: plannedSums + `,
{"$match": {"$expr": {"$ne": ["$says", "$true"]}}},
{"$project": {"_id": 1}}`,
	},
	{
		Name: "I-ACK done", Invariant: "I-ACK", From: toldOf,
		Means: "operation that a client was told of, and that is not there as told",
		Query: `
{"$match": {"outcome": "ok"}},
{"$lookup": {"from": "wallet_operations", "localField": "made", "foreignField": "_id", "as": "is"}},
{"$set": {"is": {"$first": "$is"}}},
{"$match": {"$expr": {"$or": [
	{"$gt": ["$is.refused", null]},
	{"$ne": ["$is.client", "$client"]}, {"$ne": ["$is.key", "$under"]},
	{"$ne": ["$is.kind", "$kind"]},     {"$ne": ["$is.kind", "$answer.kind"]},
	{"$ne": ["$is.wallet", "$wallet"]}, {"$ne": ["$is.wallet", "$answer.wallet"]},
	{"$ne": ["$is.to", "$to"]},         {"$ne": ["$is.to", "$answer.to"]},
	{"$ne": ["$is.amount", "$amount"]}, {"$ne": ["$is.amount", "$answer.amount"]},
	{"$ne": ["$is.bonus", "$answer.bonus"]}
]}}},
{"$project": {"_id": 1}}`,
	},
	{
		// A refusal is an answer too. One that is not kept could be followed by a success.
		Name: "I-ACK refused", Invariant: "I-ACK", From: toldOf,
		Means: "intent that was refused for lack of funds, and whose refusal is not stored",
		Query: both + `,
{"$match": {"outcome": "rejected", "problem": "insufficient-funds", "refused": 0}},
{"$project": {"_id": "$name"}}`,
	},
	{
		Name: "I-REJ", Invariant: "I-REJ", From: toldOf,
		Means: "intent whose client was told that it will not be, or that nothing was done, or that was never sent, and that was done",
		Query: both + `,
{"$match": {"done": {"$gt": 0}, "$or": [{"outcome": {"$in": ["rejected", "open"]}}, {"sent": false}]}},
{"$project": {"_id": "$name"}}`,
	},
	{
		// Operations can only come from requests: anything else is an effect that no client asked for.
		Name: "I-REJ unasked", Invariant: "I-REJ", From: toldOf,
		Means: "operation that no request asked for, as it is",
		Query: both + `,
{"$match": {"name": null}},
{"$project": {"_id": "$operation"}}`,
	},
}

// plannedOpenings is what the plan opened a wallet with, as wallet.Openings is what the
// service says.
const plannedOpenings = `
{"$project": {"wallet": "$_id", "says": "$balance"}},
{"$unionWith": {"coll": "` + openedOf + `", "pipeline": [{"$project": {"wallet": "$_id", "true": "$opening"}}]}}`

// plannedSums yields for each wallet its balance (says), and what the plan opened and its entries add up
// to (true).
const plannedSums = plannedOpenings + `,
{"$unionWith": {"coll": "wallet_entries", "pipeline": [{"$project": {"wallet": 1, "true": "$delta"}}]}},
{"$group": {"_id": "$wallet", "says": {"$sum": "$says"}, "true": {"$sum": "$true"}}}`

// What the plan opened and what clients were told, in the scenario's own database.
const (
	openedOf = "proof_opened"
	toldOf   = "proof_told"
)

// kinds are what a service calls what was asked for.
var kinds = map[loadtest.Action]string{Credit: "credit", Debit: "debit", Pay: "payment"}

// LoadHistory inserts the plan's openings and the clients' summaries into collections
// beside those of the service. The inserts are acknowledged by a majority, so that
// every later snapshot contains them.
func LoadHistory(ctx context.Context, db *mongo.Database, wallets []money.Account, records []loadtest.Record, clients []loadtest.Credentials) error {
	opened := make([]any, 0, len(wallets))
	for _, w := range wallets {
		opened = append(opened, bson.D{
			{Key: "_id", Value: uuidValue(w.ID)},
			{Key: "owner", Value: uuidValue(clients[w.Client].ID)},
			{Key: "currency", Value: w.Currency},
			{Key: "opening", Value: w.Opening},
		})
	}
	told := make([]any, 0, len(records))
	for _, r := range records {
		if r.Reads {
			continue
		}
		m := move(r.Intent)
		d := bson.D{
			{Key: "_id", Value: r.Key},
			{Key: "under", Value: r.IdempotencyKey()},
			{Key: "client", Value: uuidValue(clients[r.Client].ID)},
			{Key: "kind", Value: kinds[r.Action]},
			{Key: "wallet", Value: uuidValue(m.wallet())},
			{Key: "amount", Value: m.Amount},
			{Key: "sent", Value: r.Sent()},
			{Key: "outcome", Value: string(r.Outcome)},
			{Key: "problem", Value: r.Problem()},
			{Key: "made", Value: uuidValue(r.Made)},
			{Key: "answer", Value: operation(r)},
		}
		if r.Action == Pay {
			d = append(d, bson.E{Key: "to", Value: uuidValue(m.To)})
		}
		told = append(told, d)
	}
	majority := options.Collection().SetWriteConcern(writeconcern.Majority())
	if _, err := db.Collection(openedOf, majority).InsertMany(ctx, opened); err != nil {
		return fmt.Errorf("audit: copy openings: %w", err)
	}
	if _, err := db.Collection(toldOf, majority).InsertMany(ctx, told); err != nil {
		return fmt.Errorf("audit: copy history: %w", err)
	}
	return nil
}

// operation is the body of a success, as it would be stored; empty if it is none.
func operation(r loadtest.Record) bson.D {
	var o struct {
		Kind          string
		Wallet        uuid.UUID
		To            *uuid.UUID
		Amount, Bonus int64
	}
	if json.Unmarshal(r.Answer(), &o) != nil || o.Kind == "" {
		return bson.D{}
	}
	d := bson.D{{Key: "kind", Value: o.Kind}, {Key: "wallet", Value: uuidValue(o.Wallet)}, {Key: "amount", Value: o.Amount}, {Key: "bonus", Value: o.Bonus}}
	if o.To != nil {
		d = append(d, bson.E{Key: "to", Value: uuidValue(*o.To)})
	}
	return d
}

// uuidValue is a UUID as MongoDB keeps it.
func uuidValue(id uuid.UUID) bson.Binary {
	return bson.Binary{Subtype: bson.TypeBinaryUUID, Data: id[:]}
}

// audit reads from MongoDB where the money is, compares its members, and asks the bonus
// service which requests it got.
func (env Environment) audit(ctx context.Context, t *loadtest.Trial, records []loadtest.Record) (a loadtest.Audited, err error) {
	own := Of(t)
	if err := own.quiet(ctx, t); err != nil {
		return a, err
	}
	var members Members
	if env.Members != nil { // before there is something in the database that no replica put there
		if members, err = env.Members(ctx, t.Scenario, t.Prefix); err != nil {
			return a, err
		}
	}
	if err := LoadHistory(ctx, own.db, money.Accounts(t.Plan), records, t.Clients); err != nil {
		return a, err
	}
	if a.Findings, err = invariant.Run(ctx, slices.Concat(wallet.Invariants.Checks, HistoryChecks), wallet.Pipelines(own.db)); err != nil {
		return a, err
	}
	is, err := readStored(ctx, own.db)
	if err != nil {
		return a, err
	}
	a.Findings.Add("I-BODY", untrue(is, money.Accounts(t.Plan), records)...)
	a.Findings.Add("I-BODY", misreported(records)...)
	a.Findings.Add("I-RIGHT", deniedRight(records)...)
	a.Findings.Add("I-ONCE", sharedTwice(records)...)
	a.Findings.Add("I-SPENT", money.WronglyRefused(t.Loaded(records), money.Accounts(t.Plan), payer)...)
	if env.Members != nil {
		a.Findings.Add("M4", members.broken(records)...)
	}
	credits, err := storedCredits(ctx, own.db)
	if err != nil {
		return a, err
	}
	calls := own.bonus.Calls()
	a.Findings.Add("W-SIDE", auditSideEffects(t.Scenario, calls, credits, excusesOf(t, records))...)
	a.Evidence = tally(t.Loaded(records))
	answered := slices.DeleteFunc(slices.Clone(calls), func(c bonus.Call) bool { return c.Refused })
	a.Evidence["asked"], a.Evidence["asked_again"] = int64(len(answered)), int64(len(answered)-len(credits))
	a.Evidence["mongo_clients"] = own.clients
	if env.WireReport != nil {
		seen := env.WireReport(t.Scenario)
		a.Evidence["transactions_seen"], a.Evidence["lock_conflicts"] = seen.Transactions, seen.Conflicts
		if seen.Transactions > 0 || len(seen.Breaches) > 0 { // naive has no transactions
			a.Findings.Add("W-WIRE", seen.Breaches...)
		}
	}
	if a.Effects, err = effects(ctx, own.db); err != nil {
		return a, err
	}
	all, err := wallet.AddUp(ctx, own.db, plannedOpenings)
	a.Number = all.Drift
	return a, err
}

// keyOf is a key with its client: another client's key is another one.
type keyOf struct {
	client int
	key    string
}

// sharers are the intents of each key that two were sent under.
func sharers(records []loadtest.Record) map[keyOf][]loadtest.Record {
	shared := map[keyOf][]loadtest.Record{}
	for _, r := range records {
		if r.SharedKey != "" {
			shared[keyOf{r.Client, r.SharedKey}] = append(shared[keyOf{r.Client, r.SharedKey}], r)
		}
	}
	for _, r := range records {
		own := keyOf{r.Client, r.Key}
		if _, is := shared[own]; is { // the first to have the key, which is also its name
			shared[own] = append(shared[own], r)
		}
	}
	return shared
}

// sharedTwice lists the keys under which several operations were asked for, where
// not exactly one of them was done. (As long as one is undecided, it may be that one.)
func sharedTwice(records []loadtest.Record) (wrong []string) {
	for own, intents := range sharers(records) {
		done, open := 0, 0
		for _, r := range intents {
			switch {
			case r.Outcome == loadtest.OK:
				done++
			case r.Outcome != loadtest.Rejected || r.Refused(money.Short): // decided by a stored refusal: that has the key
				open++
			}
		}
		if done > 1 || done == 0 && open == 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %d of %d were done", own.key, done, len(intents)))
		}
	}
	return wrong
}

// deniedRight lists the refusals that no client had to expect. All of them have a right to
// what they ask for, but for what is not allowed on purpose: only money may be short, and the second of
// two intents of a client under one key is refused.
func deniedRight(records []loadtest.Record) (wrong []string) {
	shared := sharers(records)
	for _, r := range records {
		planned := r.Reads || len(r.Refusals) > 0 || r.Refused(money.Short) ||
			r.Refused(keyReused) && len(shared[keyOf{r.Client, r.SharedKey}]) > 1
		if r.Outcome == loadtest.Rejected && !planned {
			wrong = append(wrong, r.Key+": "+r.Problem())
		}
	}
	return wrong
}
