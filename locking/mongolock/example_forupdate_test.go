// SPDX-License-Identifier: MIT

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

type operation struct { // the answer to a key, stored in the transaction of its effect
	Key             string `bson:"_id"`
	Wallet          string
	Amount, Balance int64
}

// credit adds an amount and the bonus of an outside service, once for each key. After any error, send the same key again.
func credit(ctx context.Context, db *mongo.Database, bonusOf func(context.Context, operation) (int64, error), want operation) (operation, error) {
	session, err := db.Client().StartSession()
	if err != nil {
		return operation{}, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	done, err := session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		op, w := operation{}, struct{ Balance int64 }{}
		if err := mongolock.ForUpdate(ctx, db.Collection("wallets"), want.Wallet, &w); err != nil { // lock and read
			return nil, err
		}
		switch err := db.Collection("operations").FindOne(ctx, bson.M{"_id": want.Key}).Decode(&op); { // replay
		case err == nil && (op.Wallet != want.Wallet || op.Amount != want.Amount):
			return nil, errors.New("the key belongs to another request")
		case !errors.Is(err, mongo.ErrNoDocuments):
			return op, err
		}
		bonus, err := bonusOf(ctx, want) // call: the service applies a key once
		if err != nil {
			return nil, err
		}
		op = operation{want.Key, want.Wallet, want.Amount, w.Balance + want.Amount + bonus}
		if _, err = db.Collection("wallets").UpdateByID(ctx, want.Wallet, bson.M{"$set": bson.M{"balance": op.Balance}}); err == nil { // write
			_, err = db.Collection("operations").InsertOne(ctx, op)
		}
		return op, err
	}, options.Transaction().SetReadConcern(readconcern.Snapshot()).SetWriteConcern(writeconcern.Majority()))
	op, _ := done.(operation) // none, if there is an error
	return op, err
}

func ExampleForUpdate() {
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("SHOP_MONGO_URL")).SetTimeout(2 * time.Second)) // bounds WithTransaction too
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
	for _, amount := range []int64{30, 30, 31} { // the second is a retry of the first
		fmt.Println(credit(ctx, db, bonus, operation{Key: "k1", Wallet: "anna", Amount: amount}))
	}
	// Output:
	// bonus for k1
	// {k1 anna 30 133} <nil>
	// {k1 anna 30 133} <nil>
	// {  0 0} the key belongs to another request
}
