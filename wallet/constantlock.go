// SPDX-License-Identifier: MIT

package wallet

import (
	"context"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// sameID is the lockId that constant-lock always writes.
var sameID = bson.ObjectID{'l', 'o', 'c', 'k', 'e', 'd'}

// constantLock locks with a constant lockId. That locks the first time, and never again.
//
// A $set to the value that is already there changes nothing. So the server writes nothing and
// sees no conflict: two transactions pass, as under txn. An example in MongoDB's own manual did
// this (SERVER-77616). A test with one writer does not show the mistake.
func (s *Service) constantLock(ctx context.Context, o *operation) (Reply, error) {
	return s.transact(ctx, o, func(ctx context.Context) (Reply, error) {
		wallets, err := each(o, func(id uuid.UUID, w *Wallet) error {
			return s.wallets.FindOneAndUpdate(ctx,
				bson.D{{Key: "_id", Value: id}},
				bson.D{{Key: "$set", Value: bson.D{{Key: "lockId", Value: sameID}}}},
				after()).Decode(w)
		})
		if err != nil {
			return Reply{}, err
		}
		return s.finish(ctx, o, wallets, s.callBonus)
	})
}
