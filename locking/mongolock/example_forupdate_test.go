package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"shop/locking/mongolock"
)

// txOptions are the options of every transaction: all its statements see one snapshot,
// and its commit is acknowledged when a majority has it.
var txOptions = options.Transaction().SetReadConcern(readconcern.Snapshot()).SetWriteConcern(writeconcern.Majority())

// connect bounds every wait: a statement, a commit, and how long WithTransaction
// repeats its callback. Without it that is 120 s, and a commit waits without bound.
func connect(uri string) (*mongo.Client, error) {
	return mongo.Connect(options.Client().ApplyURI(uri).SetTimeout(2 * time.Second).SetWriteConcern(writeconcern.Majority()))
}

// operation is the answer to a key, stored in the transaction of its effect.
type operation struct {
	Key             string `bson:"_id"`
	Wallet          string
	Amount, Balance int64
}

var errKeyReused = errors.New("the key belongs to another request")

// credit adds an amount, and the bonus that an outside service gives for it, once for each
// key. The service applies a key once. After any error the caller sends the same key again.
func credit(ctx context.Context, db *mongo.Database, bonusOf func(context.Context, operation) (int64, error), want operation) (operation, error) {
	session, err := db.Client().StartSession()
	if err != nil {
		return operation{}, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	wallets, operations := db.Collection("wallets"), db.Collection("operations")
	done, err := session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		var w struct{ Balance int64 }
		if err := mongolock.ForUpdate(ctx, wallets, want.Wallet, &w); err != nil { // lock and read
			return nil, err
		}
		var op operation
		switch err := operations.FindOne(ctx, bson.M{"_id": want.Key}).Decode(&op); { // replay
		case err == nil && (op.Wallet != want.Wallet || op.Amount != want.Amount):
			return nil, errKeyReused
		case !errors.Is(err, mongo.ErrNoDocuments):
			return op, err
		}
		bonus, err := bonusOf(ctx, want) // call
		if err != nil {
			return nil, err
		}
		op = operation{want.Key, want.Wallet, want.Amount, w.Balance + want.Amount + bonus}
		if _, err := wallets.UpdateByID(ctx, want.Wallet, bson.M{"$set": bson.M{"balance": op.Balance}}); err != nil { // write
			return nil, err
		}
		_, err = operations.InsertOne(ctx, op)
		return op, err
	}, txOptions)
	op, _ := done.(operation) // none, if there is an error
	return op, err
}

// The lock comes first, the decision uses the document that it returns, and the key is
// stored with the effect. So a repeated request changes nothing and calls no service.
func ExampleForUpdate() {
	ctx := context.Background()
	client, err := connect(os.Getenv("SHOP_MONGO_URL"))
	if err != nil {
		log.Fatal(err)
	}
	db := client.Database("example_" + bson.NewObjectID().Hex())
	defer func() { _ = errors.Join(db.Drop(ctx), client.Disconnect(ctx)) }()
	_, err = db.Collection("wallets").InsertOne(ctx, bson.M{"_id": "anna", "balance": 100})
	if err = errors.Join(err, db.CreateCollection(ctx, "operations")); err != nil { // before traffic
		log.Fatal(err)
	}
	bonus := func(_ context.Context, op operation) (int64, error) { fmt.Println("bonus for", op.Key); return 3, nil }
	for _, want := range []operation{{"k1", "anna", 30, 0}, {"k1", "anna", 30, 0}, {"k2", "anna", 20, 0}, {"k2", "anna", 21, 0}} {
		fmt.Println(credit(ctx, db, bonus, want))
	}
	// Output:
	// bonus for k1
	// {k1 anna 30 133} <nil>
	// {k1 anna 30 133} <nil>
	// bonus for k2
	// {k2 anna 20 156} <nil>
	// {  0 0} the key belongs to another request
}
