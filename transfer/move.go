// SPDX-License-Identifier: MIT

package transfer

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"shop/locking/idempotency/pgtx"
)

// keyless is the strategy that does not ask whether a key has an answer (tokenpertransfer.go).
const keyless = "token-per-transfer"

// AmountMax is the largest amount of one transfer. Every JSON reader represents it exactly,
// and it is far below the largest balance.
const AmountMax = 1<<53 - 1

// Transfer moves the whole amount immediately, or nothing.
//
// If the error is nil, the Reply is stored under the request's key: the transfer, or a
// refusal. While the key is kept (pgtx.KeysKept), every repetition returns the same bytes.
// An error is not stored.
func (s *Service) Transfer(ctx context.Context, req Request, m Move) (Reply, error) {
	return s.move(ctx, req, m, 0)
}

// move makes a new transfer: an immediate one if expiresIn is 0, otherwise a hold.
func (s *Service) move(ctx context.Context, req Request, m Move, expiresIn time.Duration) (Reply, error) {
	if err := req.Check(); err != nil {
		return Reply{}, err
	}
	if err := m.check(); err != nil {
		return Reply{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Reply{}, err
	}
	o := &operation{Op: pgtx.Op{Request: req, Label: s.cfg.Strategy}, id: id, from: m.From, to: m.To}
	if expiresIn == 0 {
		o.move = &m
	}
	o.decide = func(ctx context.Context, a *attempt, from, to *account) (Reply, error) {
		if err := m.validate(from, to); err != nil {
			return Reply{}, err
		}
		tr := m.transfer(o, from, to, expiresIn)
		if available := from.Balance - from.Held; available < m.Amount {
			return a.short(ctx, from, tr, available)
		}
		if expiresIn > 0 {
			from.Held += m.Amount
			return a.record(tr, from)
		}
		from.Balance -= m.Amount
		to.Balance += m.Amount
		return a.record(tr, from, to)
	}
	// Before any lock: a replay needs no account and no etcd, and a request for
	// another client's account waits in no queue. The owner of an account never changes.
	if s.batches(o) && s.owners.Has(m.From, req.Client) {
		return s.run(ctx, o) // a batch looks up its keys itself
	}
	owner, owners := pgtx.Alongside[uuid.UUID](`SELECT owner_id FROM accounts WHERE id = $1`, m.From)
	reply, found, err := s.db.Lookup(ctx, req, owner)
	switch {
	case found && s.cfg.Strategy != keyless, err != nil:
		return reply, err
	case len(*owners) == 0:
		return Reply{}, fmt.Errorf("%w: account %s", ErrNotFound, m.From)
	case (*owners)[0] != req.Client:
		return Reply{}, fmt.Errorf("%w: %s", ErrForbidden, m.From)
	}
	s.owners.Add(m.From, req.Client)
	return s.run(ctx, o)
}

// batches reports whether an operation waits for a batch: an immediate transfer with combined, or between hot accounts.
func (s *Service) batches(o *operation) bool { return o.move != nil && (s.batch || s.hot(*o.move)) }

// hot reports whether both accounts are in Config.Hot.
func (s *Service) hot(m Move) bool {
	return slices.Contains(s.cfg.Hot, m.From) && slices.Contains(s.cfg.Hot, m.To)
}

// check refuses a move that is invalid between any accounts, before anything is locked.
func (m Move) check() error {
	switch {
	case m.Amount < 1 || m.Amount > AmountMax:
		return fmt.Errorf("%w: amount %d, want 1 to %d", ErrInvalid, m.Amount, int64(AmountMax))
	case m.From == m.To:
		return fmt.Errorf("%w: from and to are the same account", ErrInvalid)
	case !isCurrency(m.Currency):
		return fmt.Errorf("%w: currency %.8q", ErrInvalid, m.Currency)
	}
	return nil
}

func isCurrency(code string) bool {
	return len(code) == 3 && !strings.ContainsFunc(code, func(r rune) bool { return r < 'A' || r > 'Z' })
}

// validate refuses a move that is invalid between these two accounts.
func (m Move) validate(from, to *account) error {
	for _, a := range []*account{from, to} {
		if a.Currency != m.Currency {
			return fmt.Errorf("%w: account %s is in %s, not in %s", ErrInvalid, a.ID, a.Currency, m.Currency)
		}
	}
	if to.Balance > math.MaxInt64-m.Amount {
		return fmt.Errorf("%w: more than account %s can hold", ErrInvalid, to.ID)
	}
	return nil
}

// transfer returns the transfer to be stored. CreatedAt is the time at which the later of
// the two rows was read: a wait for a row before the read does not shorten a hold. A strategy
// that reads without locking the rows may also wait at its write. That wait, at most
// pgtx.LockTimeout for a row, is part of the hold.
func (m Move) transfer(o *operation, from, to *account, expiresIn time.Duration) Transfer {
	now := from.At.UTC()
	if to.At.After(from.At) {
		now = to.At.UTC()
	}
	tr := Transfer{
		ID: o.id, Client: o.Client, From: m.From, To: m.To,
		Amount: m.Amount, Currency: m.Currency, CreatedAt: now,
	}
	if expiresIn > 0 {
		end := now.Add(expiresIn.Truncate(time.Microsecond)) // the database's precision
		tr.State, tr.ExpiresAt = Reserved, &end
	} else {
		tr.State, tr.Settled, tr.EndedAt = Posted, m.Amount, &now
	}
	return tr
}
