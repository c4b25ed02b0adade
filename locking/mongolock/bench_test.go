// SPDX-License-Identifier: MIT

package mongolock

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking/locktest"
)

// One acquisition and one release, without contention. Both commits of Store, and that of a transaction, are
// acknowledged by a majority; transaction is one that inserts a document.
func BenchmarkUncontended(b *testing.B) {
	c, guards := newCollection(b, mongoURL(b)), newGuards(b, "k")
	if _, err := c.InsertOne(b.Context(), bson.D{{Key: "_id", Value: "row"}}); err != nil {
		b.Fatal(err)
	}
	var document bson.M
	inTx := func(c *mongo.Collection, statement func(context.Context) error) func() error {
		return func() error { return transact(b, c, statement) }
	}
	for name, once := range map[string]func() error{
		"ping":  func() error { return c.Database().Client().Ping(b.Context(), nil) },
		"Store": locktest.HoldOnce(b, newStore(b, time.Minute)),
		"transaction": inTx(c, func(ctx context.Context) error {
			_, err := c.InsertOne(ctx, bson.D{})
			return err
		}),
		"ForUpdate": inTx(c, func(ctx context.Context) error { return ForUpdate(ctx, c, "row", &document) }),
		"Guard":     inTx(guards, func(ctx context.Context) error { return Guard(ctx, guards, "k", 1) }),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := once(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
