package mongolock

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/locking"
)

// ErrUnfenced is a guard that guards nothing: a fence that is none.
var ErrUnfenced = errors.New("mongolock: a guard needs a fence")

// MakeGuards makes the documents that Guard needs, where they are not there yet: before
// traffic, outside of a transaction. Whatever they remember stays.
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

// Guard lets the transaction of ctx go on if fence is not older than any under
// which resource was guarded and committed before; else locking.ErrStale, and the
// transaction is to be aborted. The same fence passes again. Until the end of the
// transaction every other guard of the resource is a WriteConflict.
//
// It is the first statement that touches what the lock protects, before any read
// that the decision uses. A resource without document (MakeGuards) is
// mongo.ErrNoDocuments.
func Guard(ctx context.Context, c *mongo.Collection, resource string, fence locking.Fence) error {
	if err := locking.CheckKeys([]string{resource}); err != nil {
		return err
	}
	if fence <= 0 {
		return fmt.Errorf("%w: fence %d of %q", ErrUnfenced, fence, resource)
	}
	if !inTransaction(ctx) {
		return fmt.Errorf("%w: guard %q", ErrNoTransaction, resource)
	}
	// No upsert: of two that insert one fails with a duplicate key, a stale one
	// too, and the transaction is aborted before Guard can return ErrStale. The
	// counter makes it a write, hence a lock, also where the fence is equal.
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

// refusal tells a fence that is too old from a guard that does not exist.
func refusal(ctx context.Context, c *mongo.Collection, resource string, fence locking.Fence) error {
	if err := c.FindOne(ctx, bson.D{{Key: "_id", Value: resource}}).Err(); err != nil {
		return err
	}
	return fmt.Errorf("%w: fence %d", locking.ErrStale, fence)
}
