package wallet

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"shop/loadtest"
	"shop/loadtest/internal/testbed"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// ownMongo is a database for one test, without schemas and indexes: what they
// forbid has to be planted.
func ownMongo(t *testing.T) (db *mongo.Database, at string) {
	t.Helper()
	at, err := withMongoDatabase(testbed.Env(t, "SHOP_MONGO_URL"), fmt.Sprintf("loadtest_%d_%d", os.Getpid(), time.Now().UnixNano()))
	if err != nil {
		t.Fatal(err)
	}
	if db, err = mongoDatabase(at); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Drop(context.Background()); err != nil {
			t.Error(err)
		}
		if err := db.Client().Disconnect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return db, at
}

// do runs commands, as the shell would, one a line.
func do(t *testing.T, db *mongo.Database, commands string) {
	t.Helper()
	for line := range strings.Lines(commands) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var command bson.D
		if err := bson.UnmarshalExtJSON([]byte(line), false, &command); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		var answer struct{ WriteErrors bson.A }
		if err := db.RunCommand(t.Context(), command).Decode(&answer); err != nil || len(answer.WriteErrors) > 0 {
			t.Fatalf("%s: %v %v", line, answer.WriteErrors, err)
		}
	}
}

// The commands of these tests.
func insert(collection string, documents ...string) string {
	return fmt.Sprintf("{\"insert\": %q, \"documents\": [%s], \"writeConcern\": {\"w\": \"majority\"}}\n", collection, strings.Join(documents, ", "))
}

func update(collection, query, change string) string {
	return fmt.Sprintf("{\"update\": %q, \"updates\": [{\"q\": %s, \"u\": %s, \"multi\": true}], \"writeConcern\": {\"w\": \"majority\"}}\n", collection, query, change)
}

func remove(collection, query string) string {
	return fmt.Sprintf("{\"delete\": %q, \"deletes\": [{\"q\": %s, \"limit\": 0}], \"writeConcern\": {\"w\": \"majority\"}}\n", collection, query)
}

func id(text string) string { return `{"$uuid": "` + text + `"}` }

const (
	client     = "00000000-0000-0000-0000-0000000000c1"
	wallet1    = "00000000-0000-0000-0000-0000000000b1"
	wallet2    = "00000000-0000-0000-0000-0000000000b2"
	wallet3    = "00000000-0000-0000-0000-0000000000b3"
	client2    = "00000000-0000-0000-0000-0000000000c2"
	operation1 = "00000000-0000-0000-0000-000000000d01"
	operation2 = "00000000-0000-0000-0000-000000000d02"
	operation3 = "00000000-0000-0000-0000-000000000d03"
	operation4 = "00000000-0000-0000-0000-000000000d04"
	operation5 = "00000000-0000-0000-0000-000000000d05"
)

func walletDocument(wallet, owner string, opening, balance int) string {
	return fmt.Sprintf(`{"_id": %s, "owner": %s, "currency": "EUR", "opening": {"$numberLong": "%d"}, "balance": {"$numberLong": "%d"}}`, id(wallet), id(owner), opening, balance)
}

func operationDocument(operation, key, kind, more string, amount, bonus, status int) string {
	return fmt.Sprintf(`{"_id": %s, "client": %s, "key": %q, "kind": %q, "wallet": %s, "amount": {"$numberLong": "%d"}, "bonus": {"$numberLong": "%d"}, "status": %d%s}`,
		id(operation), id(client), key, kind, id(wallet1), amount, bonus, status, more)
}

func entryDocument(operation, wallet string, delta int) string {
	return fmt.Sprintf(`{"operation": %s, "wallet": %s, "delta": {"$numberLong": "%d"}}`, id(operation), id(wallet), delta)
}

// The wallets of these tests: the first had 1000, got 100 and a bonus of 10, gave
// 30 and 5 away, paid 200 to the second, and was refused 9999. The third was never
// touched: the checks must see it too.
func correctWallets() string {
	return insert("wallets", walletDocument(wallet1, client, 1000, 875), walletDocument(wallet2, client2, 0, 200), walletDocument(wallet3, client, 500, 500)) +
		insert("wallet_operations",
			operationDocument(operation1, "k1", "credit", "", 100, 10, 201),
			operationDocument(operation2, "k2", "debit", "", 30, 0, 201),
			operationDocument(operation3, "k3", "payment", `, "to": `+id(wallet2), 200, 0, 201),
			operationDocument(operation4, "k4", "debit", `, "refused": "too little"`, 9999, 0, 409),
			operationDocument(operation5, "shared", "debit", "", 5, 0, 201)) +
		insert("wallet_entries",
			entryDocument(operation1, wallet1, 110), entryDocument(operation2, wallet1, -30),
			entryDocument(operation3, wallet1, -200), entryDocument(operation3, wallet2, 200),
			entryDocument(operation5, wallet1, -5))
}

// correctReplies are the replies that the clients of correctWallets got.
func correctReplies() map[string]loadtest.Record {
	records := map[string]loadtest.Record{}
	add := func(key string, action loadtest.Action, m Move, outcome loadtest.Outcome, problem, made, answer string) {
		r := loadtest.Record{Intent: loadtest.Intent{Key: key, Action: action, Of: m}, Outcome: outcome}
		if made != "" {
			r.Made = uuid.MustParse(made)
			r.Body = []byte(`{"id":"` + made + `","wallet":"` + wallet1 + `",` + answer + `,"currency":"EUR"}`)
		}
		r.Attempts = []loadtest.Attempt{{Outcome: outcome, Problem: problem, Sends: 1}}
		records[key] = r
	}
	one, other := uuid.MustParse(wallet1), uuid.MustParse(wallet2)
	add("k1", Credit, Move{To: one, Amount: 100}, loadtest.OK, "", operation1, `"kind":"credit","amount":100,"bonus":10`)
	add("k2", Debit, Move{From: one, Amount: 30}, loadtest.OK, "", operation2, `"kind":"debit","amount":30,"bonus":0`)
	add("k3", Pay, Move{From: one, To: other, Amount: 200}, loadtest.OK, "", operation3, `"kind":"payment","to":"`+wallet2+`","amount":200,"bonus":0`)
	add("k4", Debit, Move{From: one, Amount: 9999}, loadtest.Rejected, "insufficient-funds", "", "")
	add("s1", Debit, Move{From: one, Amount: 5}, loadtest.OK, "", operation5, `"kind":"debit","amount":5,"bonus":0`)
	add("s2", Debit, Move{From: uuid.MustParse(wallet3), Amount: 5}, loadtest.Rejected, keyReused, "", "")
	add("k6", Credit, Move{To: one, Amount: 7}, loadtest.Unknown, "", "", "") // and it did not happen
	for _, key := range []string{"s1", "s2"} {
		forgery(key, func(r *loadtest.Record) { r.SharedKey = "shared" })(records)
	}
	return records
}

// forgery edits the record of one key.
func forgery(key string, edit func(*loadtest.Record)) func(map[string]loadtest.Record) {
	return func(records map[string]loadtest.Record) {
		r := records[key]
		edit(&r)
		records[key] = r
	}
}

func refusedWith(problem string) func(*loadtest.Record) {
	return func(r *loadtest.Record) {
		r.Outcome, r.Body = loadtest.Rejected, nil
		r.Attempts = []loadtest.Attempt{{Outcome: loadtest.Rejected, Problem: problem, Sends: 1}}
	}
}
