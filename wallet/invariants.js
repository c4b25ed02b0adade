// Invariants of the wallet's collections. Each aggregation returns the _id of what violates an
// invariant, and nothing if it holds; any of them can be copied into mongosh. Each reads one
// majority-committed snapshot, so it may run under traffic. The proof, `shop audit` and
// /v1/audit run this file.
//
// A check with "pieces" looks at one operation or entry after another, and at what its transaction wrote beside it. So it
// is run for ranges of _id, each in a snapshot of its own: MongoDB keeps a snapshot for some minutes only.
//
// An entry or an operation whose other side is missing must be found too, so nothing is joined
// by a $lookup alone: sums begin with all wallets and all entries.
//
// invariant: M1 money-conserved: the sum of all balances is the sum of all openings and all entries
// invariant: M2 wallet-balance: a credit has one entry of its amount plus its bonus, a debit one, a payment two whose sum is 0, a refusal none; a balance is the opening plus the entries, and not below 0
// invariant: M3 once-per-operation: no operation is done twice

// Money is neither made nor lost. (M2 checks the same for each wallet.)
//
// name: M1
// finds: difference between the sum of all balances, and of all openings and entries
db.wallets.aggregate([
{"$project": {"wallet": "$_id", "says": "$balance", "true": "$opening"}},
{"$unionWith": {"coll": "wallet_entries", "pipeline": [{"$project": {"wallet": 1, "true": "$delta"}}]}},
{"$group": {"_id": null, "says": {"$sum": "$says"}, "true": {"$sum": "$true"}}},
{"$match": {"$expr": {"$ne": ["$says", "$true"]}}},
{"$project": {"_id": {"$concat": ["off by ", {"$toString": {"$subtract": ["$says", "$true"]}}]}}}
], {readConcern: {level: "snapshot"}});

// Entries of a wallet that does not exist are those of one with balance 0.
//
// name: M2 wallets
// finds: wallet whose balance is not its opening plus its entries, or is below 0
db.wallets.aggregate([
{"$project": {"wallet": "$_id", "says": "$balance", "true": "$opening"}},
{"$unionWith": {"coll": "wallet_entries", "pipeline": [{"$project": {"wallet": 1, "true": "$delta"}}]}},
{"$group": {"_id": "$wallet", "says": {"$sum": "$says"}, "true": {"$sum": "$true"}}},
{"$match": {"$expr": {"$or": [{"$ne": ["$says", "$true"]}, {"$lt": ["$says", 0]}]}}},
{"$project": {"_id": 1}}
], {readConcern: {level: "snapshot"}});

// name: M2 operations
// finds: operation whose entries are not those of its kind, or refusal with entries
// pieces: by _id
db.wallet_operations.aggregate([
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
{"$project": {"_id": 1}}
], {readConcern: {level: "snapshot"}});

// M2 operations does not find these: an operation that does not exist has no kind.
//
// name: M2 entries
// finds: operation that does not exist, but has entries
// pieces: by _id
db.wallet_entries.aggregate([
{"$lookup": {"from": "wallet_operations", "localField": "operation", "foreignField": "_id", "as": "operations"}},
{"$match": {"operations": []}},
{"$project": {"_id": "$operation"}}
], {readConcern: {level: "snapshot"}});

// name: M3 keys
// finds: key with more than one operation
db.wallet_operations.aggregate([
{"$group": {"_id": {"client": "$client", "key": "$key"}, "n": {"$sum": 1}}},
{"$match": {"n": {"$gt": 1}}}
], {readConcern: {level: "snapshot"}});

// name: M3 entries
// finds: operation that was done twice to one wallet
db.wallet_entries.aggregate([
{"$group": {"_id": {"operation": "$operation", "wallet": "$wallet"}, "n": {"$sum": 1}}},
{"$match": {"n": {"$gt": 1}}}
], {readConcern: {level: "snapshot"}});

// name: I-ONCE answers
// finds: operation that was done although its stored answer is a refusal, or the reverse
// pieces: by _id
db.wallet_operations.aggregate([
{"$match": {"$expr": {"$eq": [
	{"$gt": ["$refused", null]},
	{"$and": [{"$gte": ["$status", 200]}, {"$lt": ["$status", 300]}]}
]}}},
{"$project": {"_id": 1}}
], {readConcern: {level: "snapshot"}});

// number: drift
// finds: minor units by which balances differ from their openings and their entries
db.wallets.aggregate([
{"$project": {"wallet": "$_id", "says": "$balance", "true": "$opening"}},
{"$unionWith": {"coll": "wallet_entries", "pipeline": [{"$project": {"wallet": 1, "true": "$delta"}}]}},
{"$group": {"_id": "$wallet", "says": {"$sum": "$says"}, "true": {"$sum": "$true"}}},
{"$group": {"_id": null, "drift": {"$sum": {"$abs": {"$subtract": ["$says", "$true"]}}}}}
], {readConcern: {level: "snapshot"}});
