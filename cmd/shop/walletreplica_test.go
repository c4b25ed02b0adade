// SPDX-License-Identifier: MIT

package main

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking/locktest"
	"shop/locking/servertest"
	"shop/wallet"
	"shop/wallet/mongotest"
)

// ownMongo gives a test a database of its own in the server at base, and sets the
// environment for its commands and replicas.
func ownMongo(t *testing.T, base string) *mongo.Database {
	t.Helper()
	databaseURL, name := mongotest.URL(t, base)
	t.Setenv("SHOP_MONGO_URL", databaseURL)
	return mongotest.Connect(t, databaseURL).Database(name)
}

// sharedMongo does the same on the shared server, and drops the database afterwards.
func sharedMongo(t *testing.T) *mongo.Database {
	t.Helper()
	db, databaseURL := mongotest.Database(t, servertest.Env(t, "SHOP_MONGO_URL"))
	t.Setenv("SHOP_MONGO_URL", databaseURL)
	return db
}

// wallets returns the demo's wallets, which seed prints each time.
func wallets(t *testing.T, databaseURL string) map[string]string {
	t.Helper()
	out, err := shop(t, "seed", "--postgres-url", databaseURL)
	if err != nil {
		t.Fatal(out, err)
	}
	return readSeed(out, "WALLET")
}

// walletReplica is a replica, with a wallet of alice.
type walletReplica struct {
	*replica
	id string
}

func startWalletReplica(t *testing.T, url, key, id string, flags ...string) walletReplica {
	t.Helper()
	return walletReplica{startReplica(t, url, key, append([]string{"--strategy=row"}, flags...)...), id}
}

// open waits until wallets are open: the first probe of a busy MongoDB may take longer than its limit.
func (p walletReplica) open() walletReplica {
	p.t.Helper()
	locktest.Eventually(p.t, "wallets are open", func() bool {
		_, text := p.get(p.metrics)
		return strings.Contains(text, `breaker_open{server="mongo"} 0`)
	})
	return p
}

// openWallet opens a wallet of the owner.
func openWallet(t *testing.T, db *mongo.Database, owner uuid.UUID, opening int64) string {
	t.Helper()
	service, err := wallet.New(wallet.Config{Database: db})
	if err != nil {
		t.Fatal(err)
	}
	id := uuid.New()
	if _, err := service.OpenWallet(t.Context(), wallet.Wallet{ID: id, Owner: owner, Currency: "EUR", Opening: opening}); err != nil {
		t.Fatal(err)
	}
	return id.String()
}

func (p walletReplica) credit(key string) (int, string) {
	return p.write("credits", key, `{"amount":100}`)
}

func (p walletReplica) debit(key string) (int, string) { return p.write("debits", key, `{"amount":1}`) }

func (p walletReplica) write(how, key, body string) (int, string) {
	return p.send("POST", "/v1/wallets/"+p.id+"/"+how, key, body)
}

func (p walletReplica) read() (int, string) { return p.send("GET", "/v1/wallets/"+p.id, "", "") }

// documents counts the documents of a collection.
func documents(t *testing.T, db *mongo.Database, collection string) int64 {
	t.Helper()
	n, err := db.Collection(collection).CountDocuments(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
