// SPDX-License-Identifier: MIT

package stack_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/compose/local/stack"
)

func mongoAdmin(t *testing.T, s *stack.Server) *mongo.Database {
	t.Helper()
	return mongoClient(t, s.Env["SHOP_MONGO_URL"]).Database("admin")
}

// A set of one elects itself after each start and refuses writes until then. Start
// must return after the election.
func TestMongo_StartedMeansThatAPrimaryTakesWrites(t *testing.T) {
	t.Parallel()
	srv := server(t, open(t, "mongo"), "mongo")
	for _, end := range []func(context.Context) error{srv.Kill, srv.Stop} {
		must(t, "end", end(t.Context()))
		must(t, "Start", srv.Start(t.Context()))
		alone := mongoClient(t, "mongodb://"+srv.Addr+"/?directConnection=true")
		_, err := alone.Database("test").Collection("kept").InsertOne(t.Context(), bson.M{"v": 1})
		must(t, "the first write after Start", err)
	}
}

// Fault tests make commands fail with failCommand.
func TestMongo_KnowsTestCommands(t *testing.T) {
	t.Parallel()
	admin := mongoAdmin(t, server(t, open(t, "mongo"), "mongo"))
	must(t, "failCommand", admin.RunCommand(t.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: bson.M{"times": 1}},
		{Key: "data", Value: bson.M{"failCommands": bson.A{"hostInfo"}, "errorCode": 112}},
	}).Err())
	err := admin.RunCommand(t.Context(), bson.M{"hostInfo": 1}).Err()
	if failed, ok := err.(mongo.ServerError); !ok || !failed.HasErrorCode(112) {
		t.Fatalf("hostInfo: %v, want error 112", err)
	}
}

// The transaction of a dead client keeps its documents locked for a minute by
// default; tests set a shorter limit.
func TestMongo_ATransactionEndsAtTheLimitThatIsSet(t *testing.T) {
	t.Parallel()
	srv := server(t, open(t, "mongo"), "mongo")
	admin := mongoAdmin(t, srv)
	must(t, "setParameter", admin.RunCommand(t.Context(), bson.D{
		{Key: "setParameter", Value: 1}, {Key: "transactionLifetimeLimitSeconds", Value: 1},
	}).Err())
	must(t, "write", registers["mongo"](t, srv).write(t.Context(), "before"))

	session, err := admin.Client().StartSession()
	must(t, "session", err)
	defer session.EndSession(context.Background())
	must(t, "begin", session.StartTransaction())
	inside := mongo.NewSessionContext(t.Context(), session)
	kept := admin.Client().Database("test").Collection("kept")
	set := func(ctx context.Context, value string) error {
		_, err := kept.UpdateByID(ctx, 1, bson.M{"$set": bson.M{"v": value}})
		return err
	}
	must(t, "write in the transaction", set(inside, "inside"))

	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	start := time.Now()
	must(t, "a write that waits for the transaction's end", set(ctx, "after"))
	t.Logf("the transaction was ended after %s", time.Since(start))
	if err := session.CommitTransaction(t.Context()); err == nil {
		t.Fatal("the transaction outlived its limit and was committed")
	}
}

// Each test has its own database, hundreds in all: the files of dropped databases must not
// stay open on the shared server.
func TestMongo_TheFilesOfADroppedDatabaseGo(t *testing.T) {
	t.Parallel()
	srv := server(t, open(t, "mongo"), "mongo")
	files := func() int {
		found, err := filepath.Glob(filepath.Join(srv.Dir, "*.wt"))
		must(t, "Glob", err)
		return len(found)
	}
	admin, other := mongoAdmin(t, srv), registers["mongo"](t, srv)
	must(t, "write", other.write(t.Context(), "first"))
	before := files()
	database := admin.Client().Database("dropped")
	for n := range 20 {
		must(t, "CreateCollection", database.CreateCollection(t.Context(), fmt.Sprint(n)))
	}
	if made := files() - before; made < 20 {
		t.Fatalf("20 collections have %d files", made)
	}
	must(t, "Drop", database.Drop(t.Context()))
	eventually(t, "the files of the 20 are gone", func() bool {
		// A checkpoint removes the files once later writes have moved the history on.
		must(t, "write", other.write(t.Context(), "more"))
		must(t, "checkpoint", admin.RunCommand(t.Context(), bson.D{{Key: "fsync", Value: 1}}).Err())
		return files() < before+20 // the server makes a few of its own
	})
}
