// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/loadtest"
	"shop/loadtest/soak"
	"shop/wallet"
)

// quiet returns when nothing changes any more. The replicas of a soak keep running: then it waits
// until no transaction is open, and moves refusals of earlier shifts away from the audit.
func (s *Stores) quiet(ctx context.Context, t *loadtest.Trial) error {
	if !t.Lives() {
		return waitQuiet(ctx, s.db, t.Prefix, loadtest.QuietWait)
	}
	err := loadtest.WaitNone(ctx, loadtest.QuietWait, "transactions are open in MongoDB", func() (int64, error) {
		var status struct{ Transactions struct{ CurrentOpen int64 } }
		err := s.db.Client().Database("admin").RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status)
		return status.Transactions.CurrentOpen, err
	})
	if err != nil {
		return err
	}
	return s.setAside(ctx)
}

var refused = bson.E{Key: "refused", Value: bson.D{{Key: "$exists", Value: true}}}

// aged is by how much an archive dates refusals back: enough for them to be purged.
const aged = wallet.KeysKept + time.Hour

// setAside moves the refusals that should have been purged to a collection that the soak counts and
// no audit reads.
func (s *Stores) setAside(ctx context.Context) error {
	old := bson.D{refused, {Key: "createdAt", Value: bson.D{{Key: "$lt", Value: time.Now().Add(-wallet.KeysKept)}}}}
	operations := s.db.Collection("wallet_operations")
	copied, err := operations.Aggregate(ctx, mongo.Pipeline{
		{{Key: "$match", Value: old}},
		{{Key: "$merge", Value: bson.D{{Key: "into", Value: soak.Unpurged}}}},
	})
	if err == nil {
		err = copied.Close(ctx)
	}
	if err == nil {
		_, err = operations.DeleteMany(ctx, old)
	}
	if err != nil {
		return fmt.Errorf("set refusals aside: %w", err)
	}
	return nil
}

// archive empties the collections of wallets. The refusals stay until they are purged.
func archive(ctx context.Context, t *loadtest.Trial) error {
	own := Of(t)
	for _, name := range []string{"wallets", "wallet_entries", openedOf, summariesOf} {
		if _, err := own.db.Collection(name).DeleteMany(ctx, bson.D{}); err != nil {
			return fmt.Errorf("empty %s: %w", name, err)
		}
	}
	operations := own.db.Collection("wallet_operations")
	if _, err := operations.DeleteMany(ctx, bson.D{{Key: "refused", Value: bson.D{{Key: "$exists", Value: false}}}}); err != nil {
		return fmt.Errorf("empty wallet_operations: %w", err)
	}
	older := bson.D{{Key: "$subtract", Value: bson.A{"$createdAt", aged.Milliseconds()}}}
	_, err := operations.UpdateMany(ctx, bson.D{refused}, mongo.Pipeline{{{Key: "$set", Value: bson.D{{Key: "createdAt", Value: older}}}}})
	if err != nil {
		return fmt.Errorf("date refusals back: %w", err)
	}
	own.bonus.Forget()
	return nil
}
