// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// entriesMax is how many of a wallet's latest entries are shown.
const entriesMax = 20

// OpenWallet makes a wallet with its opening balance. If the id exists, nothing changes and
// opened is false, so it may be repeated after any error.
func (s *Service) OpenWallet(ctx context.Context, w Wallet) (opened bool, err error) {
	if w.Opening < 0 || w.Opening > AmountMax || !isCurrency(w.Currency) {
		return false, fmt.Errorf("%w: opening %d %.8q", ErrInvalid, w.Opening, w.Currency)
	}
	// Only an update with a pipeline can both take the time from the server and leave an
	// existing wallet unchanged.
	put := mongo.Pipeline{{{Key: "$replaceWith", Value: bson.D{{Key: "$mergeObjects", Value: bson.A{
		bson.D{
			{Key: "owner", Value: w.Owner},
			{Key: "currency", Value: w.Currency},
			{Key: "opening", Value: w.Opening},
			{Key: "balance", Value: w.Opening},
			{Key: "lockId", Value: bson.NewObjectID()},
			{Key: "createdAt", Value: "$$NOW"},
			{Key: "updatedAt", Value: "$$NOW"},
		},
		"$$ROOT",
	}}}}}}
	result, err := s.wallets.UpdateByID(ctx, w.ID, put, options.UpdateOne().SetUpsert(true))
	if mongo.IsDuplicateKeyError(err) { // another request opened it at the same moment
		return false, nil
	}
	if err != nil {
		return false, toPublic(ctx, fmt.Errorf("wallet: open wallet %s: %w", w.ID, err))
	}
	return result.UpsertedCount == 1, nil
}

func isCurrency(code string) bool {
	if len(code) != 3 {
		return false
	}
	for _, r := range code {
		if r < 'A' || r > 'Z' {
			return false
		}
	}
	return true
}

// Wallet returns a wallet of the client, with its latest entries. For another client's it
// returns ErrNotFound, as for one that does not exist.
func (s *Service) Wallet(ctx context.Context, client, id uuid.UUID) (Wallet, error) {
	// One statement reads one majority-committed snapshot: the balance and the entries match.
	wallets := s.wallets.Clone(options.Collection().SetReadConcern(snapshot))
	cursor, err := wallets.Aggregate(ctx, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "_id", Value: id}, {Key: "owner", Value: client}}}},
		{{Key: "$lookup", Value: bson.D{
			{Key: "from", Value: s.entries.Name()},
			{Key: "localField", Value: "_id"},
			{Key: "foreignField", Value: "wallet"},
			{Key: "pipeline", Value: mongo.Pipeline{
				{{Key: "$sort", Value: bson.D{{Key: "createdAt", Value: -1}, {Key: "_id", Value: -1}}}},
				{{Key: "$limit", Value: entriesMax}},
			}},
			{Key: "as", Value: "entries"},
		}}},
	})
	if err != nil {
		return Wallet{}, toPublic(ctx, fmt.Errorf("wallet: wallet %s: %w", id, err))
	}
	var found []Wallet
	if err := cursor.All(ctx, &found); err != nil {
		return Wallet{}, toPublic(ctx, fmt.Errorf("wallet: wallet %s: %w", id, err))
	}
	if len(found) == 0 {
		return Wallet{}, fmt.Errorf("%w: wallet %s", ErrNotFound, id)
	}
	return found[0], nil
}
