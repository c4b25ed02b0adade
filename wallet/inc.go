package wallet

import (
	"context"
	"errors"
	"math"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// inc: ask first, then let the server add. Right where the bonus service applies an
// operation once however often it is asked.
//
// The plain answer where nothing is computed from the balance: the statement that
// adds is the lock, and it is short. The question is outside of the transaction, so
// that no collision repeats it. But it is asked before it is known whether there
// will be an effect: for requests that are refused, and by each of two that have the same key.
// It is asked before the queue too, so that no other request waits for the bonus service.
func (s *Service) inc(ctx context.Context, j *job) (Reply, error) {
	reply, found, err := s.lookupReply(undated{ctx}, j.req)
	if err != nil {
		return Reply{}, toPublic(ctx, err)
	}
	if found {
		return reply, nil
	}
	bonus, err := s.ask(ctx, j)
	if err != nil {
		return Reply{}, toPublic(ctx, err)
	}
	return s.transact(ctx, j, func(ctx context.Context) (Reply, error) {
		if reply, found, err := s.lookupReply(ctx, j.req); found || err != nil {
			return reply, err
		}
		op := j.op
		op.Bonus = bonus
		wallets, err := each(j, func(id uuid.UUID, w *Wallet) error { return s.add(ctx, id, w, op.delta(id)) })
		if err != nil {
			return Reply{}, err
		}
		if err := s.step(ctx, AfterGuard); err != nil {
			return Reply{}, err
		}
		were := before(wallets, op)
		if err := j.validate(were); err != nil {
			return s.refused(ctx, j, were, err) // which takes back what was added
		}
		return s.insert(ctx, j, op, wallets)
	})
}

// add adds delta to a balance if it stays at 0 or above and within int64, else it reads the wallet.
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
	w.Balance += delta // as if it had been added: before() takes it back, and fits refuses
	return err
}

// before are the wallets as they were before op.
func before(wallets []Wallet, op Operation) []Wallet {
	were := make([]Wallet, len(wallets))
	for i, w := range wallets {
		w.Balance -= op.delta(w.ID)
		were[i] = w
	}
	return were
}
