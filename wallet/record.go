// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"shop/locking/idempotency"
)

// bonusCall returns the bonus of an operation.
type bonusCall func(context.Context, *operation) (int64, error)

// finish follows the read of the wallets in all strategies but inc. It replays, or decides, calls
// the bonus service and writes. Whether the wallets can change meanwhile depends on the strategy.
func (s *Service) finish(ctx context.Context, o *operation, wallets []Wallet, bonus bonusCall) (Reply, error) {
	if err := s.step(ctx, AfterGuard); err != nil {
		return Reply{}, err
	}
	if reply, found, err := s.lookupReply(ctx, o.req); found || err != nil {
		return reply, err
	}
	if err := o.validate(wallets); err != nil {
		return s.refused(ctx, o, wallets, err)
	}
	op := o.intent
	var err error
	if op.Bonus, err = bonus(ctx, o); err != nil {
		return Reply{}, err
	}
	for i := range wallets {
		if err := s.save(ctx, &wallets[i], wallets[i].Balance+op.delta(wallets[i].ID)); err != nil {
			return Reply{}, err
		}
	}
	return s.insert(ctx, o, op, wallets)
}

// refused stores a refusal, if err is one that is stored. It does so in the transaction that
// found the reason: that may have read from a deposed primary, and only its own majority
// commit shows that it did not. The balances are written back unchanged, so that a change
// since the read is a WriteConflict. Other refusals store nothing, but the transaction commits
// for the same reason.
func (s *Service) refused(ctx context.Context, o *operation, wallets []Wallet, err error) (Reply, error) {
	for i := range wallets {
		if err := s.save(ctx, &wallets[i], wallets[i].Balance); err != nil {
			return Reply{}, err
		}
	}
	no := new(InsufficientFundsError)
	if !errors.As(err, &no) {
		return Reply{}, &verdictError{err}
	}
	op := o.intent
	op.Currency, op.CreatedAt = wallets[0].Currency, latest(wallets)
	reply, err := s.encode(op, no)
	if err != nil {
		return Reply{}, fmt.Errorf("wallet: encode refusal: %w", err)
	}
	return s.store(ctx, o, op, reply, no.Error())
}

// callBonus calls the bonus service, for credits. The transaction can still fail after that, and the
// bonus service is not informed.
func (s *Service) callBonus(ctx context.Context, o *operation) (int64, error) {
	if o.intent.Kind != Credit {
		return 0, nil
	}
	if o.bonus != nil {
		return *o.bonus, nil
	}
	bounded, cancel := context.WithTimeout(ctx, BonusTimeout)
	defer cancel()
	bonus, err := s.bonus(bounded, BonusRequest{
		Operation: o.intent.ID, Request: o.request, Attempt: max(o.attempt, 1),
		Wallet: o.intent.Wallet, Amount: o.intent.Amount,
	})
	if err == nil && (bonus < 0 || bonus > AmountMax) {
		err = fmt.Errorf("bonus %d, want 0 to %d", bonus, int64(AmountMax))
	}
	if errors.Is(err, idempotency.ErrKeyReused) {
		return 0, err
	}
	if err != nil {
		s.count(Unavailable, s.method.Name)
		return 0, &UnavailableError{err}
	}
	return bonus, s.step(ctx, AfterCall)
}

// save writes the balance that was computed from the read, and takes the time from the server.
// Under a lock the wallet has not changed since the read. If it has changed, MongoDB refuses
// this write in a transaction; under naive it overwrites the change.
func (s *Service) save(ctx context.Context, w *Wallet, balance int64) error {
	return classify("save wallet", s.wallets.FindOneAndUpdate(ctx,
		bson.D{{Key: "_id", Value: w.ID}},
		bson.D{
			{Key: "$set", Value: bson.D{{Key: "balance", Value: balance}}},
			{Key: "$currentDate", Value: bson.D{{Key: "updatedAt", Value: true}}},
		}, after()).Decode(w))
}

// insert writes the rest of an operation after its wallets: their entries, and the operation
// with the answer. The operation's _id is made of the key: a second insert of it gets WriteConflict
// or DuplicateKey.
func (s *Service) insert(ctx context.Context, o *operation, op Operation, wallets []Wallet) (Reply, error) {
	op.Currency, op.CreatedAt = wallets[0].Currency, latest(wallets)
	reply, err := s.encode(op, nil)
	if err != nil {
		return Reply{}, fmt.Errorf("wallet: encode: %w", err)
	}
	entries := make([]Entry, 0, 2)
	for _, w := range wallets {
		entries = append(entries, Entry{Operation: op.ID, Wallet: w.ID, Delta: op.delta(w.ID), CreatedAt: op.CreatedAt})
	}
	if _, err := s.entries.InsertMany(ctx, entries); err != nil {
		return Reply{}, classify("insert entries", err)
	}
	return s.store(ctx, o, op, reply, "")
}

// store inserts the operation with its key and its answer.
func (s *Service) store(ctx context.Context, o *operation, op Operation, reply Reply, refused string) (Reply, error) {
	_, err := s.operations.InsertOne(ctx, newRecord(o.req, op, reply, refused))
	return reply, classify("insert operation", err)
}

// read reads the operation's wallets without a lock, in id order.
func (s *Service) read(ctx context.Context, o *operation) ([]Wallet, error) {
	return each(o, func(id uuid.UUID, w *Wallet) error {
		return s.wallets.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Decode(w)
	})
}

// allowed refuses an operation whose client does not own the wallet, or whose wallets do not exist or
// differ in currency. It does so before the operation waits or locks anything, so that other
// clients' requests do not delay the owner's. The refusal is final: it depends on data that
// never changes, and that a majority has. If a wallet is not found, it is read again with read
// concern linearizable, because a new primary may not yet know what a majority has.
func (s *Service) allowed(ctx context.Context, o *operation) error {
	ids := o.ids()
	wallets, err := s.of(ctx, reads, ids...)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if slices.ContainsFunc(wallets, func(w Wallet) bool { return w.ID == id }) {
			continue
		}
		late, err := s.of(ctx, newest, id)
		if err != nil {
			return err
		}
		if len(late) == 0 {
			return fmt.Errorf("%w: wallet %s", ErrNotFound, id)
		}
		wallets = append(wallets, late...)
	}
	return o.permits(wallets)
}

// of finds wallets outside of any transaction.
func (s *Service) of(ctx context.Context, concern *readconcern.ReadConcern, ids ...uuid.UUID) (found []Wallet, err error) {
	wallets := s.wallets.Clone(options.Collection().SetReadConcern(concern))
	cursor, err := wallets.Aggregate(undated{ctx}, mongo.Pipeline{{{Key: "$match", Value: bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}}}})
	if err == nil {
		err = cursor.All(undated{ctx}, &found)
	}
	return found, classify("look up the wallets", err)
}

// each calls get for each of the operation's wallets, in id order.
func each(o *operation, get func(id uuid.UUID, w *Wallet) error) ([]Wallet, error) {
	ids := o.ids()
	wallets := make([]Wallet, len(ids))
	for i, id := range ids {
		err := get(id, &wallets[i])
		if errors.Is(err, mongo.ErrNoDocuments) {
			return nil, fmt.Errorf("%w: wallet %s", ErrNotFound, id)
		}
		if hasCode(err, writeConflict) {
			return nil, fmt.Errorf("%w: %w", errHeld, err)
		}
		if err != nil {
			return nil, classify("wallet "+id.String(), err)
		}
	}
	return wallets, nil
}

func latest(wallets []Wallet) (at time.Time) {
	for _, w := range wallets {
		if w.UpdatedAt.After(at) {
			at = w.UpdatedAt
		}
	}
	return at.UTC()
}

func after() *options.FindOneAndUpdateOptionsBuilder {
	return options.FindOneAndUpdate().SetReturnDocument(options.After)
}
