// SPDX-License-Identifier: MIT

package mongofault

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"shop/compose/local/stack/stacktest"
	"shop/loadtest/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// private starts a set for one test: "mongo" has one member, "mongo3" three.
func private(t *testing.T, kind string) (url string, set Set) {
	t.Helper()
	for _, s := range stacktest.Private(t, kind) {
		url, set = s.Env["SHOP_MONGO_URL"], append(set, fault.Member{Addr: s.Addr, Dir: s.Dir, Server: s})
	}
	return url, set
}

// connect creates a client with default settings. It uses the client at once, since an
// unused client takes a heartbeat, ten seconds, to disconnect.
func connect(t testing.TB, url string) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = client.Disconnect(ctx)
	})
	if err := client.Ping(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return client
}

// newProxy starts a proxy for a server.
func newProxy(t testing.TB, url string) *Proxy {
	t.Helper()
	w, err := NewProxy(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// newDatabase creates a database with the collections of package wallet, and one wallet, whose
// id is 1. It connects without a proxy, and drops the database when the test ends.
func newDatabase(t testing.TB, url string) *mongo.Database {
	t.Helper()
	db := connect(t, url).Database("fault_" + bson.NewObjectID().Hex())
	if _, err := db.Collection("wallets").InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"wallet_entries", "wallet_operations"} {
		if err := db.CreateCollection(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = db.Drop(ctx) // the server may be gone by then
	})
	return db
}
