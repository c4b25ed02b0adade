// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/loadtest/judge"
	"shop/loadtest/traffic"
	"shop/wallet"
)

// effects returns the executed operations, by their keys, in the order in which they wrote a wallet: that of the times,
// and within a transaction that of the ids of their entries.
func effects(ctx context.Context, db *mongo.Database) ([]judge.Stored, error) {
	var rows []struct {
		ID     bson.Binary `bson:"_id"`
		Client bson.Binary
		Key    string
		Bonus  int64
	}
	if err := wallet.Aggregate(ctx, db, "wallet_operations", `{"$match": {"refused": {"$exists": false}}}`, &rows); err != nil {
		return nil, fmt.Errorf("audit: effects: %w", err)
	}
	var entries []struct{ Operation bson.Binary }
	if err := wallet.Aggregate(ctx, db, "wallet_entries", `{"$sort": {"createdAt": 1, "_id": 1}}, {"$project": {"operation": 1}}`, &entries); err != nil {
		return nil, fmt.Errorf("audit: effects: %w", err)
	}
	order := map[uuid.UUID]int64{}
	for n, e := range entries {
		order[idOf(e.Operation)] = int64(n + 1)
	}
	list := []judge.Stored{} // not nil: the database was read
	for _, r := range rows {
		client, err := uuid.FromBytes(r.Client.Data)
		if err != nil {
			return nil, fmt.Errorf("audit: effects: the client of %q: %w", r.Key, err)
		}
		list = append(list, judge.Stored{
			Client: client, Key: r.Key, Order: order[idOf(r.ID)],
			Answer: traffic.Encode(map[string]any{"bonus": r.Bonus}),
		})
	}
	return list, nil
}
