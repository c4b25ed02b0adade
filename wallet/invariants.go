package wallet

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking/invariant"
)

// Openings is a pipeline over the wallets that yields their balances and their stored openings.
const Openings = `
{"$project": {"wallet": "$_id", "says": "$balance", "true": "$opening"}}`

// sums yields for each wallet its balance (says), and its opening plus its entries
// (true). Entries of a wallet that does not exist yield one with balance 0.
func sums(openings string) string {
	return openings + `,
{"$unionWith": {"coll": "wallet_entries", "pipeline": [{"$project": {"wallet": 1, "true": "$delta"}}]}},
{"$group": {"_id": "$wallet", "says": {"$sum": "$says"}, "true": {"$sum": "$true"}}}`
}

// total adds the sums of all wallets, and the absolute differences, and counts the balances
// below 0.
func total(openings string) string {
	return sums(openings) + `,
{"$group": {
	"_id": null,
	"says":  {"$sum": "$says"},
	"true":  {"$sum": "$true"},
	"drift": {"$sum": {"$abs": {"$subtract": ["$says", "$true"]}}},
	"below": {"$sum": {"$cond": [{"$lt": ["$says", 0]}, 1, 0]}}
}}`
}

// Invariants are the invariants that can be checked in the collections alone.
var Invariants = invariant.Set{
	Invariants: []invariant.Invariant{
		{Code: "M1", Name: "money-conserved", Means: "the sum of all balances is the sum of all openings and all entries"},
		{Code: "M2", Name: "wallet-balance", Means: "a credit has one entry of its amount plus its bonus, a debit one, a payment two whose sum is 0, a refusal none; a balance is the opening plus the entries, and not below 0"},
		{Code: "M3", Name: "once-per-operation", Means: "no operation is done twice"},
	},
	Checks: checks,
}

var checks = []invariant.Check{
	{
		// Money is neither made nor lost. (M2 checks the same for each wallet.)
		Name: "M1", Invariant: "M1", From: "wallets",
		Means: "difference between the sum of all balances, and of all openings and entries",
		Query: total(Openings) + `,
{"$match": {"$expr": {"$ne": ["$says", "$true"]}}},
{"$project": {"_id": {"$concat": ["off by ", {"$toString": {"$subtract": ["$says", "$true"]}}]}}}`,
	},
	{
		Name: "M2 wallets", Invariant: "M2", From: "wallets",
		Means: "wallet whose balance is not its opening plus its entries, or is below 0",
		Query: sums(Openings) + `,
{"$match": {"$expr": {"$or": [{"$ne": ["$says", "$true"]}, {"$lt": ["$says", 0]}]}}},
{"$project": {"_id": 1}}`,
	},
	{
		Name: "M2 operations", Invariant: "M2", From: "wallet_operations",
		Means: "operation whose entries are not those of its kind, or refusal with entries",
		Query: `
{"$lookup": {"from": "wallet_entries", "localField": "_id", "foreignField": "operation", "as": "entries"}},
{"$set": {
	"made": {"$map": {"input": "$entries", "in": {"wallet": "$$this.wallet", "delta": "$$this.delta"}}},
	"due": {"$switch": {"branches": [
		{"case": {"$gt": ["$refused", null]}, "then": []},
		{"case": {"$eq": ["$kind", "credit"]}, "then": [{"wallet": "$wallet", "delta": {"$add": ["$amount", "$bonus"]}}]},
		{"case": {"$eq": ["$kind", "debit"]}, "then": [{"wallet": "$wallet", "delta": {"$subtract": [0, "$amount"]}}]}],
		"default": [
			{"wallet": "$wallet", "delta": {"$subtract": [0, "$amount"]}},
			{"wallet": "$to", "delta": "$amount"}
		]}}
}},
{"$match": {"$expr": {"$or": [
	{"$ne": [{"$size": "$made"}, {"$size": "$due"}]},
	{"$not": [{"$setEquals": ["$made", "$due"]}]},
	{"$and": [{"$ne": ["$kind", "credit"]}, {"$ne": ["$bonus", 0]}]}
]}}},
{"$project": {"_id": 1}}`,
	},
	{
		// M2 operations does not find these: an operation that does not exist has no kind.
		Name: "M2 entries", Invariant: "M2", From: "wallet_entries",
		Means: "operation that does not exist, but has entries",
		Query: `
{"$lookup": {"from": "wallet_operations", "localField": "operation", "foreignField": "_id", "as": "operations"}},
{"$match": {"operations": []}},
{"$project": {"_id": "$operation"}}`,
	},
	{
		Name: "M3 keys", Invariant: "M3", From: "wallet_operations",
		Means: "key with more than one operation",
		Query: `
{"$group": {"_id": {"client": "$client", "key": "$key"}, "n": {"$sum": 1}}},
{"$match": {"n": {"$gt": 1}}}`,
	},
	{
		Name: "M3 entries", Invariant: "M3", From: "wallet_entries",
		Means: "operation that was done twice to one wallet",
		Query: `
{"$group": {"_id": {"operation": "$operation", "wallet": "$wallet"}, "n": {"$sum": 1}}},
{"$match": {"n": {"$gt": 1}}}`,
	},
	{
		Name: "I-ONCE answers", Invariant: "I-ONCE", From: "wallet_operations",
		Means: "operation that was done although its stored answer is a refusal, or the reverse",
		Query: `
{"$match": {"$expr": {"$eq": [
	{"$gt": ["$refused", null]},
	{"$and": [{"$gte": ["$status", 200]}, {"$lt": ["$status", 300]}]}
]}}},
{"$project": {"_id": 1}}`,
	},
}

// Audit counts what breaks the invariants that can be checked in the collections alone. If
// nothing is wrong, every count is 0.
func Audit(ctx context.Context, db *mongo.Database) (map[string]int64, error) {
	findings, err := invariant.Run(ctx, Invariants.Checks, Pipelines(db))
	if err != nil {
		return nil, err
	}
	counts := findings.Counts()
	all, err := AddUp(ctx, db, Openings)
	counts["drift"] = all.Drift
	return counts, err
}

// Total is the sum over all wallets. Drift is the sum of the minor units by which balances
// differ from their openings plus entries. Below counts the balances below 0.
type Total struct{ Says, True, Drift, Below int64 }

// AddUp compares all balances with all entries and the openings of a pipeline:
// Openings, or another.
func AddUp(ctx context.Context, db *mongo.Database, openings string) (Total, error) {
	var all []Total
	err := Aggregate(ctx, db, "wallets", total(openings), &all)
	if err != nil {
		return Total{}, fmt.Errorf("audit: %w", err)
	}
	if len(all) == 0 { // no wallet, no entry
		return Total{}, nil
	}
	return all[0], nil
}
