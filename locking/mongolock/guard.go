// SPDX-License-Identifier: MIT

package mongolock

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/locking"
)

// MakeGuards creates the documents that Guard needs, before there is traffic and outside
// of a transaction. It does not change existing ones.
func MakeGuards(ctx context.Context, c *mongo.Collection, resources ...string) error {
	if err := locking.CheckKeys(resources); err != nil {
		return err
	}
	if inTransaction(ctx) {
		return fmt.Errorf("mongolock: make guards: %w", ErrTransaction)
	}
	var upserts []mongo.WriteModel
	for _, resource := range resources {
		upserts = append(upserts, mongo.NewUpdateOneModel().SetUpsert(true).
			SetFilter(bson.D{{Key: "_id", Value: resource}}).
			SetUpdate(bson.D{{Key: "$setOnInsert", Value: bson.D{{Key: "fence", Value: int64(0)}, {Key: "passed", Value: int64(0)}}}}))
	}
	if _, err := acknowledged(c).BulkWrite(ctx, upserts, options.BulkWrite().SetOrdered(false)); err != nil {
		return fmt.Errorf("mongolock: make guards: %w", err)
	}
	return nil
}

// Guard returns nil if no transaction that guarded resource with a newer fence has
// committed. Otherwise it returns locking.ErrStale, and the transaction must be aborted.
// An equal fence passes. Until the end of the transaction every other guard of the
// resource fails with a WriteConflict.
//
// Guard must be the first statement that touches what the lock protects, before any
// read that the decision uses. If the resource has no document (see MakeGuards), it
// returns mongo.ErrNoDocuments.
func Guard(ctx context.Context, c *mongo.Collection, resource string, fence locking.Fence) error {
	if err := locking.CheckKeys([]string{resource}); err != nil {
		return err
	}
	if fence <= 0 {
		return fmt.Errorf("%w: fence %d of %q", locking.ErrUnfenced, fence, resource)
	}
	if !inTransaction(ctx) {
		return fmt.Errorf("%w: guard %q", ErrNoTransaction, resource)
	}
	// No upsert: of two concurrent inserts one fails with a duplicate key, and so does
	// the insert for a stale fence. That aborts the transaction before Guard can return
	// ErrStale. The counter makes an equal fence a write too, and so a lock.
	result, err := c.UpdateOne(ctx,
		bson.D{{Key: "_id", Value: resource}, {Key: "fence", Value: bson.D{{Key: "$lte", Value: int64(fence)}}}},
		bson.D{
			{Key: "$set", Value: bson.D{{Key: "fence", Value: int64(fence)}}},
			{Key: "$inc", Value: bson.D{{Key: "passed", Value: int64(1)}}},
		})
	if err == nil && result.MatchedCount == 0 {
		err = refusal(ctx, c, resource, fence)
	}
	if err != nil {
		return fmt.Errorf("mongolock: guard %q: %w", resource, err)
	}
	return nil
}

// refusal returns ErrStale, or mongo.ErrNoDocuments if the guard does not exist.
func refusal(ctx context.Context, c *mongo.Collection, resource string, fence locking.Fence) error {
	if err := c.FindOne(ctx, bson.D{{Key: "_id", Value: resource}}).Err(); err != nil {
		return err
	}
	return fmt.Errorf("%w: fence %d", locking.ErrStale, fence)
}
