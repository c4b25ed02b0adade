// SPDX-License-Identifier: MIT

package mongolock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"shop/locking"
	"shop/locking/mongolock"
)

// connect bounds every wait: a statement, a commit, and how long WithTransaction repeats its
// callback. Without the timeout that is 120 s, and a commit waits without bound.
func connect(uri string) (*mongo.Client, error) {
	return mongo.Connect(options.Client().ApplyURI(uri).SetTimeout(2 * time.Second))
}

// A lease makes it rare that two processes close the month at once. The guard makes it
// impossible that the older holder commits after the newer one.
func Example() {
	ctx := context.Background()
	client, err := connect(os.Getenv("SHOP_MONGO_URL"))
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
	store, err := mongolock.New(database.Collection("locks"), 6*time.Second, mongolock.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	err = locking.Do(ctx, store, locking.Options{}, []string{"report/2026-11"}, func(ctx context.Context, l locking.Lease) error {
		_, err := store.TryAcquire(ctx, "report/2026-11")
		fmt.Println("another holder:", errors.Is(err, locking.ErrBusy))
		session, err := client.StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(ctx)
		_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
			return nil, mongolock.Guard(ctx, guards, "report/2026-11", l.Fence) // the work follows here
		}, options.Transaction().SetReadConcern(readconcern.Snapshot()).SetWriteConcern(writeconcern.Majority()))
		return err
	})
	fmt.Println("done:", err)
	// Output:
	// another holder: true
	// done: <nil>
}
