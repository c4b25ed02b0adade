package wallet

import (
	"context"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// sameID is what constant-lock writes, always.
var sameID = bson.ObjectID{'l', 'o', 'c', 'k', 'e', 'd'}

// constantLock: a lock that is a constant. It locks once, the first time, and
// never again.
//
// $set to the value that is there changes nothing, so that the server writes
// nothing and sees no conflict: two transactions pass, as under txn. MongoDB's own
// manual had it like this (SERVER-77616). A test with one writer does not show it.
func (s *Service) constantLock(ctx context.Context, j *job) (Reply, error) {
	return s.transact(ctx, j, func(ctx context.Context) (Reply, error) {
		wallets, err := each(j, func(id uuid.UUID, w *Wallet) error {
			return s.wallets.FindOneAndUpdate(ctx,
				bson.D{{Key: "_id", Value: id}},
				bson.D{{Key: "$set", Value: bson.D{{Key: "lockId", Value: sameID}}}},
				after()).Decode(w)
		})
		if err != nil {
			return Reply{}, err
		}
		return s.finish(ctx, j, wallets, s.ask)
	})
}
