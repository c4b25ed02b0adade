// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/loadtest/internal/testbed"
	"shop/loadtest/site"
	"shop/loadtest/traffic"
)

// ownMongo creates a database for one test, without schemas and indexes, since tests plant
// what those forbid.
func ownMongo(t *testing.T) (db *mongo.Database, at string) {
	t.Helper()
	own, err := site.OpenMongo(testbed.Env(t, "SHOP_MONGO_URL"), fmt.Sprintf("loadtest_%d_%d", os.Getpid(), time.Now().UnixNano()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Close(context.Background(), false) })
	return own.Database, own.URL
}

// do runs commands, one per line, as in the shell.
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
	return fmt.Sprintf(`{"_id": %s, "owner": %s, "currency": "EUR", "opening": {"$numberLong": "%d"}, "balance": {"$numberLong": "%d"}, "createdAt": {"$date": "2026-01-01T00:00:00Z"}}`, id(wallet), id(owner), opening, balance)
}

func operationDocument(operation, key, kind, more string, amount, bonus, status int) string {
	return fmt.Sprintf(`{"_id": %s, "client": %s, "key": %q, "kind": %q, "wallet": %s, "amount": {"$numberLong": "%d"}, "bonus": {"$numberLong": "%d"}, "status": %d, "currency": "EUR", "createdAt": {"$date": "2026-01-01T00:00:01Z"}%s}`,
		id(operation), id(client), key, kind, id(wallet1), amount, bonus, status, more)
}

func entryDocument(operation, wallet string, delta int) string {
	return fmt.Sprintf(`{"operation": %s, "wallet": %s, "delta": {"$numberLong": "%d"}, "createdAt": {"$date": "2026-01-01T00:00:01Z"}}`, id(operation), id(wallet), delta)
}

// The wallets of these tests: the first had 1000, got 100 and a bonus of 10, was debited
// 30 and 5, paid 200 to the second, and was refused 9999. The third was never used: the
// checks must see it too.
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

// correctReplies returns the replies that the clients of correctWallets got.
func correctReplies() map[string]traffic.Record {
	records := map[string]traffic.Record{}
	add := func(i traffic.Intent, outcome traffic.Outcome, problem, made, body string) {
		r := traffic.Record{Intent: i, Outcome: outcome, Body: []byte(body)}
		if made != "" {
			r.Made = uuid.MustParse(made)
			r.Body = []byte(`{"id":"` + made + `","wallet":"` + wallet1 + `",` + body + `,"currency":"EUR","created_at":"2026-01-01T00:00:01Z"}`)
		}
		r.Attempts = []traffic.Attempt{{Outcome: outcome, Problem: problem, Sends: 1}}
		records[i.Key] = r
	}
	ask := func(key string, action traffic.Action, m Move) traffic.Intent {
		return traffic.Intent{Key: key, Action: action, Of: m}
	}
	one, other := uuid.MustParse(wallet1), uuid.MustParse(wallet2)
	add(ask("k1", Credit, Move{To: one, Amount: 100}), traffic.OK, "", operation1, `"kind":"credit","amount":100,"bonus":10`)
	add(ask("k2", Debit, Move{From: one, Amount: 30}), traffic.OK, "", operation2, `"kind":"debit","amount":30,"bonus":0`)
	add(ask("k3", Pay, Move{From: one, To: other, Amount: 200}), traffic.OK, "", operation3, `"kind":"payment","to":"`+wallet2+`","amount":200,"bonus":0`)
	add(ask("k4", Debit, Move{From: one, Amount: 9999}), traffic.Rejected, "insufficient-funds", "", `{"status":409,"wallet":"`+wallet1+`","wanted":9999,"available":875}`)
	add(ask("s1", Debit, Move{From: one, Amount: 5}), traffic.OK, "", operation5, `"kind":"debit","amount":5,"bonus":0`)
	add(ask("s2", Debit, Move{From: uuid.MustParse(wallet3), Amount: 5}), traffic.Rejected, traffic.KeyReused, "", "")
	add(ask("k6", Credit, Move{To: one, Amount: 7}), traffic.Unknown, "", "", "") // it did not happen
	add(ask("k7", Debit, Move{From: one, Amount: 7}), traffic.Open, "busy", "", "")
	for _, again := range attacks[Credit] { // for another amount, and for a debit
		add(*again(records["k1"]), traffic.Rejected, traffic.KeyReused, "", "")
	}
	duplicate := ask("k9", Credit, Move{To: other, Amount: 1}) // the key of another client
	duplicate.Client, duplicate.SharedKey = 1, "k2"
	add(duplicate, traffic.Unknown, "", "", "")
	add(*readIntent(0, "read", one), traffic.OK, "", "", walletShown)
	for _, key := range []string{"s1", "s2"} {
		forgery(key, func(r *traffic.Record) { r.SharedKey = "shared" })(records)
	}
	return records
}

// walletShown is the first wallet of correctWallets in an answer.
const walletShown = `{"id":"` + wallet1 + `","currency":"EUR","balance":875,"created_at":"2026-01-01T00:00:00Z","entries":[` +
	`{"operation":"` + operation5 + `","delta":-5,"created_at":"2026-01-01T00:00:01Z"},` +
	`{"operation":"` + operation3 + `","delta":-200,"created_at":"2026-01-01T00:00:01Z"},` +
	`{"operation":"` + operation2 + `","delta":-30,"created_at":"2026-01-01T00:00:01Z"},` +
	`{"operation":"` + operation1 + `","delta":110,"created_at":"2026-01-01T00:00:01Z"}]}`

// forgery edits the record of one key.
func forgery(key string, edit func(*traffic.Record)) func(map[string]traffic.Record) {
	return func(records map[string]traffic.Record) {
		r := records[key]
		edit(&r)
		records[key] = r
	}
}

// tells forges an answer by replacing some of its text.
func tells(key, is, becomes string) func(map[string]traffic.Record) {
	return forgery(key, func(r *traffic.Record) { r.Body = []byte(strings.Replace(string(r.Body), is, becomes, 1)) })
}

func refusedWith(problem string) func(*traffic.Record) {
	return func(r *traffic.Record) {
		r.Outcome, r.Body = traffic.Rejected, nil
		r.Attempts = []traffic.Attempt{{Outcome: traffic.Rejected, Problem: problem, Sends: 1}}
	}
}
