package wallet

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/loadtest"
	"shop/wallet"
)

// effects returns the executed operations, by their keys. Their times are in the order in which they
// wrote a wallet.
func effects(ctx context.Context, db *mongo.Database) ([]loadtest.Stored, error) {
	var rows []struct {
		Client    bson.Binary
		Key       string
		Bonus     int64
		CreatedAt time.Time `bson:"createdAt"`
	}
	if err := wallet.Aggregate(ctx, db, "wallet_operations", `{"$match": {"refused": {"$exists": false}}}`, &rows); err != nil {
		return nil, fmt.Errorf("audit: effects: %w", err)
	}
	list := []loadtest.Stored{} // not nil: the database was read
	for _, r := range rows {
		client, err := uuid.FromBytes(r.Client.Data)
		if err != nil {
			return nil, fmt.Errorf("audit: effects: the client of %q: %w", r.Key, err)
		}
		list = append(list, loadtest.Stored{
			Client: client, Key: r.Key, Order: r.CreatedAt.UnixMilli(),
			Answer: loadtest.Encode(map[string]any{"bonus": r.Bonus}),
		})
	}
	return list, nil
}
