// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"errors"
	"math"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// inc calls the bonus service first, then lets MongoDB add. It is right if the bonus service
// applies an operation once, however often it is called.
//
// It is the simple strategy where nothing is computed from the balance: the statement that
// adds is the lock, and the lock is short. The call is outside of the transaction, so no
// collision repeats it. But it comes before it is known whether the request has an effect:
// refused requests call too, and so does each of two with the same key. The call also comes
// before the queue, so no other request waits for the bonus service.
func (s *Service) inc(ctx context.Context, o *operation) (Reply, error) {
	reply, found, err := s.lookupReply(undated{ctx}, o.req)
	if err != nil {
		return Reply{}, toPublic(ctx, err)
	}
	if found {
		return reply, nil
	}
	bonus, err := s.callBonus(ctx, o)
	if err != nil {
		return Reply{}, toPublic(ctx, err)
	}
	return s.transact(ctx, o, func(ctx context.Context) (Reply, error) {
		if reply, found, err := s.lookupReply(ctx, o.req); found || err != nil {
			return reply, err
		}
		op := o.intent
		op.Bonus = bonus
		wallets, err := each(o, func(id uuid.UUID, w *Wallet) error { return s.add(ctx, id, w, op.delta(id)) })
		if err != nil {
			return Reply{}, err
		}
		if err := s.step(ctx, AfterGuard); err != nil {
			return Reply{}, err
		}
		were := before(wallets, op)
		if err := o.validate(were); err != nil {
			return s.refused(ctx, o, were, err) // this also takes back what was added
		}
		return s.insert(ctx, o, op, wallets)
	})
}

// add adds delta to a balance if the result is 0 or more and fits int64. Otherwise it reads the wallet.
func (s *Service) add(ctx context.Context, id uuid.UUID, w *Wallet, delta int64) error {
	possible := bson.D{{Key: "$gte", Value: -delta}}
	if delta > 0 {
		possible = bson.D{{Key: "$lte", Value: math.MaxInt64 - delta}}
	}
	err := s.wallets.FindOneAndUpdate(ctx,
		bson.D{{Key: "_id", Value: id}, {Key: "balance", Value: possible}},
		bson.D{
			{Key: "$inc", Value: bson.D{{Key: "balance", Value: delta}}},
			{Key: "$currentDate", Value: bson.D{{Key: "updatedAt", Value: true}}},
		}, after()).Decode(w)
	if !errors.Is(err, mongo.ErrNoDocuments) {
		return err
	}
	err = s.wallets.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(w)
	w.Balance += delta // as if it had been added: before() takes it back, and validate refuses
	return err
}

// before returns the wallets as they were before op.
func before(wallets []Wallet, op Operation) []Wallet {
	were := make([]Wallet, len(wallets))
	for i, w := range wallets {
		w.Balance -= op.delta(w.ID)
		were[i] = w
	}
	return were
}
