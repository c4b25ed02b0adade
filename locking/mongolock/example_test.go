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
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"shop/locking"
	"shop/locking/mongolock"
)

// A lease makes it rare that two close the month at once; the guard makes it
// impossible that the older one of them commits after the newer.
func Example() {
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("SHOP_MONGO_URL")))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Disconnect(ctx) }()
	database := client.Database("example")
	defer func() { _ = database.Drop(ctx) }()
	guards := database.Collection("guards")
	if err := mongolock.MakeGuards(ctx, guards, "report/2026-11"); err != nil { // before traffic
		log.Fatal(err)
	}
	store, err := mongolock.New(database.Collection("locks"), 6*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	err = locking.Do(ctx, store, locking.Options{}, []string{"report/2026-11"}, func(ctx context.Context, l locking.Lease) error {
		_, err := store.TryAcquire(ctx, "report/2026-11")
		fmt.Println("someone else:", errors.Is(err, locking.ErrBusy))
		session, err := client.StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(ctx)
		_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
			return nil, mongolock.Guard(ctx, guards, "report/2026-11", l.Fence) // … and then the work
		}, options.Transaction().SetWriteConcern(writeconcern.Majority()))
		return err
	})
	fmt.Println("done:", err)
	// Output:
	// someone else: true
	// done: <nil>
}

// ForUpdate comes first, and what it returns is what counts.
func ExampleForUpdate() {
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("SHOP_MONGO_URL")))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Disconnect(ctx) }()
	wallets := client.Database("example_for_update").Collection("wallets")
	defer func() { _ = wallets.Database().Drop(ctx) }()
	if _, err := wallets.InsertOne(ctx, bson.M{"_id": "anna", "balance": 100}); err != nil {
		log.Fatal(err)
	}

	session, err := client.StartSession()
	if err != nil {
		log.Fatal(err)
	}
	defer session.EndSession(ctx)
	balance, err := session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		var w struct{ Balance int64 }
		if err := mongolock.ForUpdate(ctx, wallets, "anna", &w); err != nil {
			return nil, err
		}
		w.Balance -= 30 // nobody else is between the lock and the commit
		_, err := wallets.UpdateByID(ctx, "anna", bson.M{"$set": bson.M{"balance": w.Balance}})
		return w.Balance, err
	}, options.Transaction().SetWriteConcern(writeconcern.Majority()))
	fmt.Println(balance, err)
	// Output:
	// 70 <nil>
}
