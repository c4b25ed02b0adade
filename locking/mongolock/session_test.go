// SPDX-License-Identifier: MIT

package mongolock

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// inTx returns the options of all transactions in these tests.
func inTx() *options.TransactionOptionsBuilder {
	return options.Transaction().SetReadConcern(readconcern.Snapshot()).SetWriteConcern(writeconcern.Majority())
}

// tx is a transaction whose steps a test controls. It does not use WithTransaction, which
// would retry by itself.
type tx struct {
	t       testing.TB
	session *mongo.Session
	ctx     context.Context
}

// begin starts a transaction, which is aborted at the end of the test if still open.
func begin(t testing.TB, c *mongo.Collection) *tx {
	t.Helper()
	session, err := c.Database().Client().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.StartTransaction(inTx()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.EndSession(context.Background()) }) // aborts
	return &tx{t: t, session: session, ctx: mongo.NewSessionContext(t.Context(), session)}
}

func (x *tx) commit() {
	x.t.Helper()
	if err := x.session.CommitTransaction(x.ctx); err != nil {
		x.t.Fatal(err)
	}
}

func (x *tx) abort() {
	x.t.Helper()
	if err := x.session.AbortTransaction(x.ctx); err != nil {
		x.t.Fatal(err)
	}
}

// transact runs f in transactions until one commits, or f returns an error of its own.
func transact(t testing.TB, c *mongo.Collection, f func(context.Context) error) error {
	t.Helper()
	session, err := c.Database().Client().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(context.Background())
	_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) { return nil, f(ctx) }, inTx())
	return err
}

// wantConflict checks that err is the conflict after which the second of two writers retries.
func wantConflict(t testing.TB, err error) {
	t.Helper()
	var labelled mongo.LabeledError
	var server mongo.ServerError
	if !errors.As(err, &labelled) || !labelled.HasErrorLabel("TransientTransactionError") ||
		!errors.As(err, &server) || !server.HasErrorCode(112) {
		t.Errorf("got %v, want a WriteConflict with the label TransientTransactionError", err)
	}
}

// insert puts documents {_id, n: 100} into c.
func insert[ID any](t testing.TB, c *mongo.Collection, ids ...ID) {
	t.Helper()
	for _, id := range ids {
		if _, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}, {Key: "n", Value: int64(100)}}); err != nil {
			t.Fatal(err)
		}
	}
}

// counter is a document that insert has put.
type counter struct {
	ID     any            `bson:"_id"`
	N      int64          `bson:"n"`
	LockID *bson.ObjectID `bson:"lockId"`
}

// read returns the document as ctx sees it.
func read(t testing.TB, ctx context.Context, c *mongo.Collection, id any) (d counter) {
	t.Helper()
	if err := c.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d
}

func setN(ctx context.Context, c *mongo.Collection, id any, n int64) error {
	_, err := c.UpdateOne(ctx, bson.D{{Key: "_id", Value: id}}, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: n}}}})
	return err
}
