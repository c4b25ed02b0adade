// SPDX-License-Identifier: MIT

package wallet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/loadtest/judge"
	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
	"shop/wallet"
)

// operationBody is an operation as an answer must show it.
type operationBody struct {
	ID        uuid.UUID  `json:"id"`
	Kind      string     `json:"kind"`
	Wallet    uuid.UUID  `json:"wallet"`
	To        *uuid.UUID `json:"to,omitempty"`
	Amount    int64      `json:"amount"`
	Bonus     int64      `json:"bonus"`
	Currency  string     `json:"currency"`
	CreatedAt time.Time  `json:"created_at"`
}

// walletBody is a wallet as an answer must show it.
type walletBody struct {
	ID        uuid.UUID   `json:"id"`
	Currency  string      `json:"currency"`
	Balance   int64       `json:"balance"`
	Entries   []entryBody `json:"entries"`
	CreatedAt time.Time   `json:"created_at"`
}

type entryBody struct {
	Operation uuid.UUID `json:"operation"`
	Delta     int64     `json:"delta"`
	CreatedAt time.Time `json:"created_at"`
}

// entriesShown is how many of its latest entries an answer shows of a wallet.
const entriesShown = 20

// stored is the content of the database with which answers are compared.
type stored struct {
	operations map[uuid.UUID]storedOperation // that were executed
	opened     map[uuid.UUID]time.Time
	entries    map[uuid.UUID]map[uuid.UUID]entryBody // by wallet and operation
}

type storedOperation struct {
	operationBody
	client uuid.UUID
	key    string
	order  int64 // of its entries, in that of the times, and within a transaction in that of their ids
}

// document has the fields of the documents of all collections.
type document struct {
	ID                        bson.Binary `bson:"_id"`
	Client, Wallet, Operation bson.Binary
	To                        *bson.Binary
	Key, Kind, Currency       string
	Amount, Bonus, Delta      int64
	CreatedAt                 time.Time `bson:"createdAt"`
}

// readStored reads all operations, wallets and entries.
func readStored(ctx context.Context, db *mongo.Database) (stored, error) {
	s := stored{map[uuid.UUID]storedOperation{}, map[uuid.UUID]time.Time{}, map[uuid.UUID]map[uuid.UUID]entryBody{}}
	var operations, wallets, entries []document
	err := errors.Join(
		wallet.Aggregate(ctx, db, "wallet_operations", `{"$match": {"refused": {"$exists": false}}}`, &operations),
		wallet.Aggregate(ctx, db, "wallets", `{"$project": {"createdAt": 1}}`, &wallets),
		wallet.Aggregate(ctx, db, "wallet_entries", `{"$sort": {"createdAt": 1, "_id": 1}}, {"$project": {"_id": 0}}`, &entries))
	if err != nil {
		return s, fmt.Errorf("audit: operations, wallets and entries: %w", err)
	}
	for _, w := range wallets {
		s.opened[idOf(w.ID)] = w.CreatedAt
	}
	order := map[uuid.UUID]int64{}
	for n, e := range entries {
		of, operation := idOf(e.Wallet), idOf(e.Operation)
		if s.entries[of] == nil {
			s.entries[of] = map[uuid.UUID]entryBody{}
		}
		s.entries[of][operation] = entryBody{operation, e.Delta, e.CreatedAt}
		order[operation] = int64(n + 1)
	}
	for _, o := range operations {
		body := operationBody{idOf(o.ID), o.Kind, idOf(o.Wallet), nil, o.Amount, o.Bonus, o.Currency, o.CreatedAt}
		if o.To != nil {
			to := idOf(*o.To)
			body.To = &to
		}
		s.operations[body.ID] = storedOperation{body, idOf(o.Client), o.Key, order[body.ID]}
	}
	return s, nil
}

// effects returns the executed operations by their keys.
func (is stored) effects() []judge.Stored {
	list := []judge.Stored{} // not nil: the database was read
	for _, o := range is.operations {
		list = append(list, judge.Stored{Client: o.client, Key: o.key, Order: o.order, Answer: traffic.Encode(map[string]any{"bonus": o.Bonus})})
	}
	return list
}

// effects reads the effects of all keys.
func effects(ctx context.Context, db *mongo.Database) ([]judge.Stored, error) {
	is, err := readStored(ctx, db)
	return is.effects(), err
}

// idOf converts a UUID from MongoDB; anything else becomes the zero UUID.
func idOf(b bson.Binary) uuid.UUID {
	id, _ := uuid.FromBytes(b.Data)
	return id
}

// untrue lists the successful answers that differ in a field from the plan or the collections.
func untrue(is stored, opened []money.Account, records []traffic.Record) (wrong []string) {
	plan := map[uuid.UUID]money.Account{}
	for _, a := range opened {
		plan[a.ID] = a
	}
	for _, r := range records {
		if r.Outcome != traffic.OK {
			continue
		}
		var want any
		if r.Action == ReadWallet {
			want = is.wallet(plan[r.Of.(Read).Wallet], r)
		} else {
			o := is.operations[r.Made].operationBody
			o.Currency = plan[move(r.Intent).wallet()].Currency
			want = o
		}
		if !bytes.Equal(traffic.Canonical(r.Body), traffic.Canonical(traffic.Encode(want))) {
			wrong = append(wrong, fmt.Sprintf("%s: answered with %s", r.Key, strings.TrimSpace(string(r.Body))))
		}
	}
	return wrong
}

// wallet returns what a read of a wallet must show, given the operations that it does show: each has
// its stored entry, the latest first. If all entries are shown, they add up to the balance.
func (is stored) wallet(plan money.Account, r traffic.Record) walletBody {
	var shown walletBody
	_ = json.Unmarshal(r.Body, &shown) // a malformed answer differs from want
	want := walletBody{ID: plan.ID, Currency: plan.Currency, Balance: max(0, shown.Balance), Entries: []entryBody{}, CreatedAt: is.opened[plan.ID]}
	sum, seen := plan.Opening, map[uuid.UUID]bool{}
	for _, e := range shown.Entries[:min(len(shown.Entries), entriesShown)] {
		entry := is.entries[plan.ID][e.Operation] // the zero entry, if none is stored
		if !seen[e.Operation] {
			want.Entries = append(want.Entries, entry)
		}
		seen[e.Operation] = true
		sum += entry.Delta
	}
	slices.SortStableFunc(want.Entries, func(a, b entryBody) int { return b.CreatedAt.Compare(a.CreatedAt) })
	if len(shown.Entries) < entriesShown {
		want.Balance = sum
	}
	return want
}

// misreported lists the refusals for lack of funds whose body does not match the request.
func misreported(records []traffic.Record) []string {
	return money.Misreported(records, "wallet", func(i traffic.Intent) (uuid.UUID, int64) { return move(i).From, move(i).Amount })
}
