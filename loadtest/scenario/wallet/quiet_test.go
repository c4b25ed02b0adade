// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/site"
	"shop/wallet"
)

// replicaOf connects as a replica does: with the URL that it gets.
func replicaOf(t *testing.T, at string) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	if err := client.Ping(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return client
}

func TestWaitMongoQuiet_ReturnsOnlyWhenNoClientOfTheNameIsConnected(t *testing.T) {
	db, at := ownMongo(t)
	if err := (&site.Mongo{Database: db}).WaitQuiet(t.Context(), site.QuietWait); err != nil {
		t.Errorf("no connection is left, but: %v", err)
	}
	replica := replicaOf(t, at)
	if err := (&site.Mongo{Database: db}).WaitQuiet(t.Context(), 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "connections are left") {
		t.Errorf("quiet, although a client is connected: %v", err)
	}
	quiet := make(chan error, 1)
	go func() { quiet <- (&site.Mongo{Database: db}).WaitQuiet(t.Context(), site.QuietWait) }()
	if err := replica.Disconnect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-quiet; err != nil {
		t.Error(err)
	}
}

// The server still executes a command whose client has died. Until it has finished, the
// database is not quiet; afterwards the command's effect is visible.
func TestWaitMongoQuiet_WaitsForACommandWhoseClientIsDead(t *testing.T) {
	db, at := ownMongo(t)
	do(t, db, correctWallets())
	dying := replicaOf(t, at).Database(db.Name())
	slow := bson.D{ // seconds of work, and a write in each
		{Key: "update", Value: "wallets"},
		{Key: "updates", Value: bson.A{bson.D{
			{Key: "q", Value: bson.D{{Key: "currency", Value: "EUR"}, {Key: "$where", Value: "sleep(1500) || true"}}},
			{Key: "u", Value: bson.D{{Key: "$inc", Value: bson.D{{Key: "balance", Value: 1}}}}},
			{Key: "multi", Value: true},
		}}},
	}
	ctx, die := context.WithCancel(t.Context())
	sent := make(chan error, 1)
	go func() { sent <- dying.RunCommand(ctx, slow).Err() }()
	for n := 0; n == 0; n = underWay(t, db) {
		fault.Wait(t.Context(), 5*time.Millisecond)
	}
	die()
	if err := <-sent; err == nil {
		t.Fatal("the command was answered before its client died")
	}
	if err := dying.Client().Disconnect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if underWay(t, db) == 0 {
		t.Fatal("the server stopped the command: this test shows nothing")
	}
	if err := (&site.Mongo{Database: db}).WaitQuiet(t.Context(), site.QuietWait); err != nil {
		t.Fatal(err)
	}
	if n := underWay(t, db); n != 0 {
		t.Errorf("quiet, although %d commands are under way", n)
	}
	if drift, err := wallet.Drift(t.Context(), db, wallet.Openings); err != nil || drift != 3 {
		t.Errorf("%+v, %v; want its effect on three wallets", drift, err)
	}
}

func TestFigures_ConnectionsAndOpenTransactionsAreFound(t *testing.T) {
	db, at := ownMongo(t)
	do(t, db, correctWallets())
	trial := &loadtest.Trial{Prefix: db.Name(), State: &Stores{db: &site.Mongo{Database: db}}}
	read := func() map[string]int64 {
		figures, err := Figures(t.Context(), trial, nil)
		if err != nil {
			t.Fatal(err)
		}
		named := map[string]int64{}
		for _, f := range figures {
			named[f.Name] = f.After
		}
		return named
	}
	if got := read(); got["MongoDB: connections"] != 0 {
		t.Errorf("at the beginning: %v", got)
	}
	replica := replicaOf(t, at)
	session, err := replica.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(context.Background()) // aborts it
	if err := session.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	if _, err := replica.Database(db.Name()).Collection("wallets").UpdateMany(mongo.NewSessionContext(t.Context(), session), bson.D{}, bson.D{{Key: "$inc", Value: bson.D{{Key: "balance", Value: 1}}}}); err != nil {
		t.Fatal(err)
	}
	if got := read(); got["MongoDB: connections"] < 1 || got["MongoDB: open transactions"] < 1 {
		t.Errorf("with a transaction of a replica: %v", got)
	}
}

// underWay counts the updates of wallets that the server is executing.
func underWay(t *testing.T, db *mongo.Database) int {
	t.Helper()
	cursor, err := db.Client().Database("admin").Aggregate(t.Context(), mongo.Pipeline{
		{{Key: "$currentOp", Value: bson.D{}}},
		{{Key: "$match", Value: bson.D{{Key: "ns", Value: db.Name() + ".wallets"}, {Key: "op", Value: "update"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var found []bson.Raw
	if err := cursor.All(t.Context(), &found); err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// The transaction of a dead client stays open for a minute. The audit need not wait for its end.
func TestWaitMongoQuiet_DoesNotWaitForATransactionWhoseClientIsDead(t *testing.T) {
	db, at := ownMongo(t)
	do(t, db, correctWallets())
	dead := replicaOf(t, at)
	session, err := dead.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	settled(t, db)
	if err := session.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	ctx := mongo.NewSessionContext(t.Context(), session)
	if _, err := dead.Database(db.Name()).Collection("wallets").UpdateMany(ctx, bson.D{}, bson.D{{Key: "$inc", Value: bson.D{{Key: "balance", Value: 1}}}}); err != nil {
		t.Fatal(err)
	}
	admin, transaction := db.Client().Database("admin"), session.ID()
	t.Cleanup(func() { // the transaction holds a lock that dropping the database needs
		if err := admin.RunCommand(context.Background(), bson.D{{Key: "killSessions", Value: bson.A{transaction}}}).Err(); err != nil {
			t.Error(err)
		}
	})
	if err := dead.Disconnect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := (&site.Mongo{Database: db}).WaitQuiet(t.Context(), site.QuietWait); err != nil {
		t.Fatal(err)
	}
	if drift, err := wallet.Drift(t.Context(), db, wallet.Openings); err != nil || drift != 0 {
		t.Errorf("%+v, %v; want no effect of the uncommitted transaction", drift, err)
	}
}
