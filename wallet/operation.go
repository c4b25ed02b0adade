// SPDX-License-Identifier: MIT

package wallet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"

	"github.com/google/uuid"
)

// AmountMax is the largest amount of one operation, and the largest bonus. Every JSON reader
// represents it exactly, and it is far below the largest balance.
const AmountMax = 1<<53 - 1

// operation is a checked request for an Operation: the state that is kept from attempt to attempt.
// What an attempt reads is not kept, unless a field says so.
type operation struct {
	req     Request
	intent  Operation // as requested: without bonus, currency, time
	request uuid.UUID
	attempt int    // the number of the attempt, from 1
	leave   func() // passes the turn on; nil: the operation has no turn
	unknown bool   // an earlier commit may have happened: no error may claim otherwise
	batch   bool   // it stands for several requests, which were bounded before, and have a turn (combined)
	bonus   *int64 // what the bonus service has answered, if that is kept from attempt to attempt (combined)
}

// Credit adds amount to the client's wallet, and the bonus that BonusFunc returns for it.
//
// If the error is nil, the Reply is stored under the request's key: the operation, or a
// refusal. While the key is kept, every repetition returns the same bytes: for ever if the
// operation had an effect, else for KeysKept. An error is not stored.
func (s *Service) Credit(ctx context.Context, req Request, wallet uuid.UUID, amount int64) (Reply, error) {
	return s.do(ctx, req, Operation{Kind: Credit, Wallet: wallet, Amount: amount})
}

// Debit takes amount from the client's wallet, if the balance suffices. It is stored like a Credit.
func (s *Service) Debit(ctx context.Context, req Request, wallet uuid.UUID, amount int64) (Reply, error) {
	return s.do(ctx, req, Operation{Kind: Debit, Wallet: wallet, Amount: amount})
}

// Payment is what Pay moves.
type Payment struct {
	From   uuid.UUID // the client's
	To     uuid.UUID // of any client, in the same currency
	Amount int64
}

// Pay moves money from the client's wallet to another. It is stored like a Credit.
func (s *Service) Pay(ctx context.Context, req Request, p Payment) (Reply, error) {
	return s.do(ctx, req, Operation{Kind: Pay, Wallet: p.From, To: &p.To, Amount: p.Amount})
}

// do runs an operation of any kind.
func (s *Service) do(ctx context.Context, req Request, op Operation) (Reply, error) {
	op.ID, op.Client = operationID(req), req.Client
	if err := op.check(req); err != nil {
		return Reply{}, err
	}
	if op.To == nil && slices.Contains(s.hot, op.Wallet) {
		s, _ = s.With(nameCombined) // which exists
	}
	return s.request(ctx, &operation{req: req, intent: op, request: uuid.New()})
}

// operationID derives the id of an operation from the client and its key. The operation is
// stored under the id, and the bonus service gets the id: for both, a repetition at any
// server is the same operation.
func operationID(req Request) uuid.UUID {
	return uuid.NewHash(sha256.New(), req.Client, []byte(req.Key), 8) // version 8: a custom format
}

// check refuses an operation that is invalid for any wallets, before anything is locked.
func (op Operation) check(req Request) error {
	if err := req.Check(); err != nil {
		return err
	}
	switch {
	case op.Amount < 1 || op.Amount > AmountMax:
		return fmt.Errorf("%w: amount %d, want 1 to %d", ErrInvalid, op.Amount, int64(AmountMax))
	case op.To != nil && *op.To == op.Wallet:
		return fmt.Errorf("%w: from and to are the same wallet", ErrInvalid)
	}
	return nil
}

// ids returns the wallets in byte order, which is MongoDB's order of UUIDs. Every request
// locks them in this order.
func (o *operation) ids() []uuid.UUID {
	ids := []uuid.UUID{o.intent.Wallet}
	if o.intent.To != nil {
		ids = append(ids, *o.intent.To)
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

// delta returns what the operation adds to one of its wallets.
func (op Operation) delta(wallet uuid.UUID) int64 {
	if op.Kind == Credit || wallet != op.Wallet {
		return op.Amount + op.Bonus
	}
	return -op.Amount
}

// permits checks the owners and currencies of the wallets, which never change.
func (o *operation) permits(wallets []Wallet) error {
	for _, w := range wallets {
		switch {
		case w.ID == o.intent.Wallet && w.Owner != o.intent.Client:
			return fmt.Errorf("%w: %s", ErrForbidden, w.ID)
		case w.Currency != wallets[0].Currency:
			return fmt.Errorf("%w: one wallet is in %s, the other in %s", ErrInvalid, wallets[0].Currency, w.Currency)
		}
	}
	return nil
}

// validate checks the operation against the wallets as they are now. An InsufficientFundsError
// is a refusal that is stored; other errors are not stored.
func (o *operation) validate(wallets []Wallet) error {
	if err := o.permits(wallets); err != nil {
		return err
	}
	for _, w := range wallets {
		if delta := o.intent.delta(w.ID); delta > 0 && w.Balance > math.MaxInt64-delta-AmountMax { // whatever the bonus will be
			return fmt.Errorf("%w: more than wallet %s can hold", ErrInvalid, w.ID)
		}
	}
	for _, w := range wallets {
		if w.Balance+o.intent.delta(w.ID) < 0 {
			return &InsufficientFundsError{w.ID, o.intent.Amount, w.Balance}
		}
	}
	return nil
}
