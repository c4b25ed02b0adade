// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"shop/loadtest"
	"shop/loadtest/scenario/money"
	"shop/loadtest/site"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
	"shop/wallet"
	"shop/wallet/bonus"
)

// both joins the answers under a key, wallet, kind and amount with the operations that are
// stored under them. Several intents may share a key: for two wallets, two kinds or two amounts.
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

// HistoryChecks compare the collections with the wallets of the plan and with the answers
// to clients. They need the collections that LoadHistory fills: a document for each
// wallet, and one for each intent.
var HistoryChecks = []invariant.Check{
	{
		// If the service itself raises an opening, or opens a wallet, its collections still agree with each
		// other. Only the plan shows the difference.
		Name: "M1 opened", Invariant: "M1", From: "wallets",
		Means: "wallet that differs from the plan, that is not in the plan, or that is missing",
		Query: `
{"$project": {"owner": 1, "currency": 1, "opening": 1}},
{"$unionWith": {"coll": "` + openedOf + `"}},
{"$group": {"_id": {"wallet": "$_id", "owner": "$owner", "currency": "$currency", "opening": "$opening"}, "n": {"$sum": 1}}},
{"$match": {"n": {"$ne": 2}}},
{"$group": {"_id": "$_id.wallet"}}`,
	},
	{
		Name: "M1 planned", Invariant: "M1", From: "wallets",
		Means: "difference between all balances and the plan's openings plus all entries",
		Query: planned("M1"),
	},
	{
		Name: "M2 planned", Invariant: "M2", From: "wallets",
		Means: "wallet whose balance differs from the plan's opening plus its entries",
		Query: planned("M2 wallets"),
	},
	{
		Name: "I-ACK done", Invariant: "I-ACK", From: summariesOf,
		Means: "acknowledged operation that does not exist as acknowledged",
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
		// A refusal is an answer too. If it is not stored, the same key could succeed later.
		Name: "I-ACK refused", Invariant: "I-ACK", From: summariesOf,
		Means: "intent that was refused for lack of funds, but whose refusal is not stored",
		Query: both + `,
{"$match": {"outcome": "rejected", "problem": "insufficient-funds", "refused": 0}},
{"$project": {"_id": "$name"}}`,
	},
	{
		Name: "I-REJ", Invariant: "I-REJ", From: summariesOf,
		Means: "executed intent that was refused, or reported as not done, or never sent",
		Query: both + `,
{"$match": {"done": {"$gt": 0}, "$or": [{"outcome": {"$in": ["rejected", "open"]}}, {"sent": false}]}},
{"$project": {"_id": "$name"}}`,
	},
	{
		Name: "I-REJ unasked", Invariant: "I-REJ", From: summariesOf,
		Means: "operation without a request for exactly that",
		Query: both + `,
{"$match": {"name": null}},
{"$project": {"_id": "$operation"}}`,
	},
}

// plannedOpenings yields the balances and the plan's openings, as wallet.Openings does with the
// service's own openings.
const plannedOpenings = `
{"$project": {"wallet": "$_id", "says": "$balance"}},
{"$unionWith": {"coll": "` + openedOf + `", "pipeline": [{"$project": {"wallet": "$_id", "true": "$opening"}}]}}`

// planned returns the query of one of the wallet's own checks, with the plan's openings.
func planned(name string) string {
	own := wallet.Invariants.Checks
	i := slices.IndexFunc(own, func(c invariant.Check) bool { return c.Name == name })
	return strings.Replace(own[i].Query, wallet.Openings, plannedOpenings, 1)
}

// The collections of the plan's wallets and of the answers, in the scenario's own database.
const (
	openedOf    = "proof_opened"
	summariesOf = "proof_summaries"
)

// kinds maps actions to the service's kinds of operation.
var kinds = map[traffic.Action]string{Credit: "credit", Debit: "debit", Pay: "payment"}

// LoadHistory inserts the plan's openings and the clients' summaries into collections
// beside those of the service. The inserts are acknowledged by a majority, so that
// every later snapshot contains them.
func LoadHistory(ctx context.Context, db *mongo.Database, wallets []money.Account, records []traffic.Record, clients []loadtest.Credentials) error {
	var opened, summaries []bson.M
	for _, w := range wallets {
		opened = append(opened, bson.M{"_id": uuidValue(w.ID), "owner": uuidValue(clients[w.Client].ID), "currency": w.Currency, "opening": w.Opening})
	}
	for _, r := range records {
		if r.Reads {
			continue
		}
		m := move(r.Intent)
		d := bson.M{
			"_id": r.Key, "under": r.IdempotencyKey(), "client": uuidValue(clients[r.Client].ID),
			"kind": kinds[r.Action], "wallet": uuidValue(m.wallet()), "amount": m.Amount,
			"sent": r.Sent(), "outcome": string(r.Outcome), "problem": r.Problem(), "made": uuidValue(r.Made), "answer": operation(r),
		}
		if r.Action == Pay {
			d["to"] = uuidValue(m.To)
		}
		summaries = append(summaries, d)
	}
	majority := options.Collection().SetWriteConcern(writeconcern.Majority())
	if _, err := db.Collection(openedOf, majority).InsertMany(ctx, opened); err != nil {
		return fmt.Errorf("audit: copy openings: %w", err)
	}
	if _, err := db.Collection(summariesOf, majority).InsertMany(ctx, summaries); err != nil {
		return fmt.Errorf("audit: copy history: %w", err)
	}
	return nil
}

// operation returns the answer to a success in the form in which it is stored; empty for other answers.
func operation(r traffic.Record) bson.M {
	var o operationBody
	if json.Unmarshal(r.Answer(), &o) != nil || o.Kind == "" {
		return bson.M{}
	}
	d := bson.M{"kind": o.Kind, "wallet": uuidValue(o.Wallet), "amount": o.Amount, "bonus": o.Bonus}
	if o.To != nil {
		d["to"] = uuidValue(*o.To)
	}
	return d
}

// uuidValue converts a UUID for MongoDB.
func uuidValue(id uuid.UUID) bson.Binary {
	return bson.Binary{Subtype: bson.TypeBinaryUUID, Data: id[:]}
}

// Members is the result of comparing the members of a replica set.
type Members struct {
	Compared   bool     // false: there is one member
	Apart      []string // differences between members
	RolledBack []string // ids of operations in the files of rollbacks
}

// broken lists the breaches of M4: members that differ, and acknowledged operations
// that were rolled back.
func (m Members) broken(records []traffic.Record) []string {
	found := slices.Clone(m.Apart)
	acknowledged := map[string]string{}
	for _, r := range records {
		if r.Outcome == traffic.OK {
			acknowledged[r.Made.String()] = r.Key
		}
	}
	for _, id := range m.RolledBack {
		if key, known := acknowledged[id]; known {
			found = append(found, key+": operation "+id+" was acknowledged, but rolled back")
		}
	}
	return found
}

// WireReport is what the proxies in front of MongoDB have seen.
type WireReport struct {
	Transactions int64    // 0 without breaches: there was no proxy
	Breaches     []string // of the rules of the strategy
	Conflicts    int64    // locks refused because of another transaction
}

// auditWait bounds the queries of an audit: after a long load they take longer than those of a sample.
const auditWait = 5 * time.Minute

// audit checks the collections against the plan and the answers, the members of the set against
// each other, and the requests that the bonus service got against the credits.
func (env Environment) audit(ctx context.Context, t *loadtest.Trial, records []traffic.Record) (a loadtest.Audited, err error) {
	own := Of(t)
	if err := own.db.WaitQuiet(ctx, site.QuietWait); err != nil {
		return a, err
	}
	var members Members
	if env.Members != nil { // before the audit itself writes to the database
		if members, err = env.Members(ctx, t.Scenario, t.Prefix); err != nil {
			return a, err
		}
	}
	ctx, stop := context.WithTimeout(ctx, auditWait) // replaces the timeout of the client
	defer stop()
	wallets, db := money.Accounts(t.Plan), own.db.Database
	if err := LoadHistory(ctx, db, wallets, records, t.Clients); err != nil {
		return a, err
	}
	if a.Findings, err = invariant.Run(ctx, slices.Concat(wallet.Invariants.Checks, HistoryChecks), wallet.Pipelines(db)); err != nil {
		return a, err
	}
	is, err := readStored(ctx, db)
	if err != nil {
		return a, err
	}
	a.Effects = is.effects()
	a.Findings.Add("I-BODY", untrue(is, wallets, records)...)
	a.Findings.Add("I-BODY", misreported(records)...)
	a.Findings.Add("I-RIGHT", deniedRight(records)...)
	a.Findings.Add("I-ONCE", sharedTwice(records)...)
	a.Findings.Add("I-SPENT", money.WronglyRefused(t.Loaded(records), wallets, payer)...)
	if members.Compared {
		a.Findings.Add("M4", members.broken(records)...)
	}
	calls, credits := own.bonus.Calls(), is.credits()
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
	if a.Evidence["together"], err = together(ctx, db); err != nil {
		return a, err
	}
	a.Number, err = wallet.Drift(ctx, db, plannedOpenings)
	return a, err
}

// together counts the transactions that stored several credits and debits of a wallet. The operations of a transaction
// have one time, that of the write to the wallet, and no other operation of the wallet has it.
func together(ctx context.Context, db *mongo.Database) (int64, error) {
	var batches []struct{ N int64 }
	err := wallet.Aggregate(ctx, db, "wallet_operations", `
{"$match": {"kind": {"$ne": "payment"}}},
{"$group": {"_id": {"wallet": "$wallet", "at": "$createdAt"}, "n": {"$sum": 1}}},
{"$match": {"n": {"$gt": 1}}}`, &batches)
	if err != nil {
		return 0, fmt.Errorf("audit: transactions of several operations: %w", err)
	}
	return int64(len(batches)), nil
}

// keyOf is a key with its client: keys of different clients are independent.
type keyOf struct {
	client int
	key    string
}

// sharers returns the intents of each key that an intent has instead of its own.
func sharers(records []traffic.Record) map[keyOf][]traffic.Record {
	shared := map[keyOf][]traffic.Record{}
	for _, r := range records {
		key := keyOf{r.Client, r.IdempotencyKey()}
		shared[key] = append(shared[key], r)
	}
	maps.DeleteFunc(shared, func(_ keyOf, intents []traffic.Record) bool {
		return !slices.ContainsFunc(intents, func(r traffic.Record) bool { return r.SharedKey != "" })
	})
	return shared
}

// sharedTwice lists the shared keys under which no operation, or more than one, was
// executed. (An undecided operation may have been executed.)
func sharedTwice(records []traffic.Record) (wrong []string) {
	for own, intents := range sharers(records) {
		done, open := 0, 0
		for _, r := range intents {
			switch {
			case r.Outcome == traffic.OK:
				done++
			case r.Outcome != traffic.Rejected || r.Refused(money.Short): // a stored refusal uses up the key
				open++
			}
		}
		if done > 1 || done == 0 && open == 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %d of %d were executed", own.key, done, len(intents)))
		}
	}
	return wrong
}

// deniedRight lists the unexpected refusals. Clients are authorized for all their requests, except
// those that are forbidden on purpose. The only expected refusals are those for lack of funds, and
// of the second of two intents of a client under one key.
func deniedRight(records []traffic.Record) (wrong []string) {
	shared := sharers(records)
	for _, r := range records {
		planned := r.Reads || len(r.Refusals) > 0 || r.Refused(money.Short) ||
			r.Refused(traffic.KeyReused) && len(shared[keyOf{r.Client, r.SharedKey}]) > 1
		if r.Outcome == traffic.Rejected && !planned {
			wrong = append(wrong, r.Key+": "+r.Problem())
		}
	}
	return wrong
}
