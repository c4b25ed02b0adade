package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"shop/locking/mongolock"
)

// surely is for every transaction: all its statements see one moment, and it is
// acknowledged when a majority has it.
var surely = options.Transaction().SetReadConcern(readconcern.Snapshot()).SetWriteConcern(writeconcern.Majority())

// connect bounds every wait: a statement, a commit, and how long WithTransaction
// repeats its callback. Without it that is 120 s, and a commit waits without bound.
func connect(uri string) (*mongo.Client, error) {
	return mongo.Connect(options.Client().ApplyURI(uri).SetTimeout(2 * time.Second).
		SetReadConcern(readconcern.Majority()).SetWriteConcern(writeconcern.Majority()))
}

// operation is the answer to a key, stored in the transaction of its effect.
type operation struct {
	Key     string `bson:"_id"`
	Wallet  string
	Amount  int64
	Balance int64
}

var errKeyReused = errors.New("the key belongs to another request")

// credit adds an amount, and the bonus that an outside service gives for it, once
// for each key. After any error the caller sends the same key again.
func credit(ctx context.Context, db *mongo.Database, key, wallet string, amount int64) (operation, error) {
	session, err := db.Client().StartSession()
	if err != nil {
		return operation{}, err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	wallets, operations := db.Collection("wallets"), db.Collection("operations")
	done, err := session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		var w struct{ Balance int64 }
		if err := mongolock.ForUpdate(ctx, wallets, wallet, &w); err != nil { // lock and read
			return nil, err
		}
		var op operation
		err := operations.FindOne(ctx, bson.M{"_id": key}).Decode(&op) // replay
		if err == nil && (op.Wallet != wallet || op.Amount != amount) {
			return nil, errKeyReused
		}
		if !errors.Is(err, mongo.ErrNoDocuments) {
			return op, err
		}
		bonus, err := askBonus(ctx, key, amount) // call
		if err != nil {
			return nil, err
		}
		op = operation{key, wallet, amount, w.Balance + amount + bonus}
		if _, err := wallets.UpdateByID(ctx, wallet, bson.M{"$set": bson.M{"balance": op.Balance}}); err != nil { // write
			return nil, err
		}
		_, err = operations.InsertOne(ctx, op)
		return op, err
	}, surely)
	if err != nil {
		return operation{}, err
	}
	return done.(operation), nil
}

// asked counts the questions to the service, by key.
var (
	asking sync.Mutex
	asked  = map[string]int{}
)

// askBonus stands for a call over the network. The service applies a key once.
func askBonus(_ context.Context, key string, amount int64) (int64, error) {
	asking.Lock()
	defer asking.Unlock()
	asked[key]++
	return amount / 10, nil
}

// The lock comes first, what it returns is what counts, and the key is stored with
// the effect: so a repetition changes nothing, and asks for nothing.
func ExampleForUpdate() {
	ctx := context.Background()
	client, err := connect(os.Getenv("SHOP_MONGO_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Disconnect(ctx) }()
	db := client.Database("example_for_update")
	defer func() { _ = db.Drop(ctx) }()
	if err := db.CreateCollection(ctx, "operations"); err != nil { // before there is traffic
		log.Fatal(err)
	}
	if _, err := db.Collection("wallets").InsertOne(ctx, bson.M{"_id": "anna", "balance": 100}); err != nil {
		log.Fatal(err)
	}
	for _, c := range []struct {
		key    string
		amount int64
	}{{"k1", 30}, {"k1", 30}, {"k2", 20}, {"k2", 21}} {
		op, err := credit(ctx, db, c.key, "anna", c.amount)
		fmt.Println(c.key, op.Balance, err)
	}
	fmt.Println("asked:", asked["k1"], asked["k2"])
	// Output:
	// k1 133 <nil>
	// k1 133 <nil>
	// k2 155 <nil>
	// k2 0 the key belongs to another request
	// asked: 1 1
}
