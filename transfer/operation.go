// SPDX-License-Identifier: MIT

package transfer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"shop/locking"
	"shop/locking/idempotency/pgtx"
)

// operation is one checked change of money: the state that is kept from attempt to attempt.
// Every strategy runs the same operations.
type operation struct {
	pgtx.Op            // without a Key: a sweep, which no client requested
	id       uuid.UUID // of the transfer
	from, to uuid.UUID
	move     *Move   // an immediate transfer; nil: anything else
	change   *change // of an existing hold; nil: a new transfer
	// decide decides from what was read, under the strategy's locks if it has any, and
	// queues the writes.
	decide    func(ctx context.Context, a *attempt, from, to *account) (Reply, error)
	expires   bool   // it ends an expired hold
	rounds    int    // how often it had to end expired holds of the payer first
	clientKey string // the client's key, if the strategy keeps it from pgtx
}

// pair returns both accounts in byte order, which is PostgreSQL's order of uuid. Every
// operation locks in this order.
func (o *operation) pair() []uuid.UUID {
	ids := []uuid.UUID{o.from, o.to}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

// attempt is one transaction of an operation, and what it has read.
type attempt struct {
	*pgtx.Tx
	*operation
	s      *Service
	reads  []*[]account
	hold   *[]Transfer        // the hold, read after the statement that ends it
	ended  *pgconn.CommandTag // UPDATE 1: this attempt ended the hold
	fence  locking.Fence      // of the lease; 0: the strategy has none
	epoch  string             // of the fence
	guards bool               // a guard was queued: a missing row may be one that the guard refused
}

// account is a row as the transaction sees it.
type account struct {
	ID       uuid.UUID
	Owner    uuid.UUID
	Currency string
	Balance  int64
	Held     int64
	At       time.Time // when the row was read, by the database's clock
}

// run runs an operation with the Service's strategy.
func (s *Service) run(ctx context.Context, o *operation) (Reply, error) {
	if err := s.step(ctx, BeforeAcquire); err != nil {
		return Reply{}, err
	}
	method := s.method
	if s.batches(o) {
		method = s.batched
	}
	reply, err := method(s, ctx, o)
	for due := new(dueError); errors.As(err, &due); {
		reply, err = s.runAfter(ctx, o, due)
	}
	if err != nil && o.Unknown() && !errors.Is(err, locking.ErrOutcomeUnknown) {
		// err comes from a later attempt than the one that may have committed.
		err = fmt.Errorf("%w: %v", locking.ErrOutcomeUnknown, err)
	}
	_ = s.step(ctx, AfterRelease)
	return reply, err
}

// step calls the failpoint of a step outside of the transaction.
func (s *Service) step(ctx context.Context, step Step) error {
	if s.cfg.Failpoint == nil {
		return nil
	}
	s.cfg.Failpoint(ctx, step, s.cfg.Strategy)
	return context.Cause(ctx)
}

// transact runs body in a transaction, which package pgtx retries.
func (s *Service) transact(ctx context.Context, o *operation, body func(context.Context, *attempt) (Reply, error)) (Reply, error) {
	reply, err := s.db.Run(ctx, &o.Op, func(ctx context.Context, tx *pgtx.Tx) (Reply, error) {
		return body(ctx, &attempt{Tx: tx, operation: o, s: s})
	})
	if err == nil && o.expires {
		s.cfg.Count(Swept, s.cfg.Strategy)
	}
	return reply, err
}

// read queues a statement that returns accounts.
func (a *attempt) read(sql string, args ...any) {
	a.reads = append(a.reads, pgtx.QueueRows[account](a.Tx, sql, args...))
}

// readAndDecide runs after the locks are taken, in strategies that read inside their only transaction.
func (a *attempt) readAndDecide(ctx context.Context) (Reply, error) {
	if a.change != nil {
		a.endHold(*a.change)
	}
	if err := a.guarded(ctx); err != nil {
		return Reply{}, err
	}
	return a.decideNow(ctx)
}

// guarded sends the queued statements, which read both accounts, and lock them if the strategy does.
func (a *attempt) guarded(ctx context.Context) error {
	if err := a.Flush(ctx); err != nil {
		return err
	}
	return a.Step(ctx, AfterGuard)
}

// decideNow decides from the accounts that were read.
func (a *attempt) decideNow(ctx context.Context) (Reply, error) {
	from, to, err := a.findAccounts(ctx)
	if err != nil {
		return Reply{}, err
	}
	return a.decide(ctx, a, from, to)
}

// findAccounts finds both accounts among the rows that were read, and checks, inside the
// transaction, that the client owns the payer's account.
func (a *attempt) findAccounts(ctx context.Context) (from, to *account, err error) {
	from, to = a.find(a.from), a.find(a.to)
	switch {
	case from == nil:
		err = fmt.Errorf("%w: account %s", ErrNotFound, a.from)
	case a.Key+a.clientKey != "" && from.Owner != a.Client:
		return nil, nil, fmt.Errorf("%w: %s", ErrForbidden, a.from) // before anything is revealed about the payee
	case to == nil:
		err = fmt.Errorf("%w: account %s", ErrNotFound, a.to)
	}
	if err != nil && a.guards {
		err = a.explainMiss(ctx, err)
	}
	return from, to, err
}

func (a *attempt) find(id uuid.UUID) *account {
	for _, rows := range a.reads {
		for i := range *rows {
			if (*rows)[i].ID == id {
				return &(*rows)[i]
			}
		}
	}
	return nil
}

// record queues the writes of an operation, without its key: the accounts, the transfer,
// and two entries if money moved. The accounts come before the rows that refer to them:
// the foreign keys of those rows lock the accounts too (FOR KEY SHARE), and the stronger
// of two locks on a row has to be taken first.
func (a *attempt) record(tr Transfer, accounts ...*account) (Reply, error) {
	a.save(accounts...)
	if a.change == nil {
		a.Queue(`
			INSERT INTO transfers (id, client_id, idempotency_key, from_id, to_id, amount, currency,
			                       state, settled, created_at, expires_at, ended_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
			tr.ID, tr.Client, cmp.Or(a.Key, a.clientKey), tr.From, tr.To, tr.Amount, tr.Currency,
			tr.State, tr.Settled, tr.CreatedAt, tr.ExpiresAt, tr.EndedAt)
	}
	if tr.Settled > 0 {
		// Each entry has the fence of this write, and the version of its account after it.
		a.Queue(`
			INSERT INTO ledger_entries (transfer_id, account_id, delta, account_version, fence, fence_epoch)
			SELECT $1, a.id, e.delta, a.version, $4, $5
			FROM unnest($2::uuid[], $3::bigint[]) AS e(id, delta)
			JOIN accounts a ON a.id = e.id`,
			tr.ID, []uuid.UUID{tr.From, tr.To}, []int64{-tr.Settled, tr.Settled}, int64(a.fence), a.epoch)
	}
	return a.s.cfg.Encode(tr, nil)
}

// save queues the balances that were computed from the rows that were read, in id order. All
// strategies write in the same way. Under a row lock or a guard the rows have not changed
// since they were read. Under naive they may have, and this write loses the updates in
// between. CHECK (balance >= held), the last guard, does not detect that.
func (a *attempt) save(accounts ...*account) {
	slices.SortFunc(accounts, func(a, b *account) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	for _, row := range accounts {
		a.Queue(`
			UPDATE accounts
			SET balance = $2, held = $3, version = version + 1
			WHERE id = $1`, row.ID, row.Balance, row.Held)
	}
}

// refuse returns the reply of a refusal, which is stored and changes nothing else.
func (s *Service) refuse(tr Transfer, why error) (Reply, error) {
	reply, err := s.cfg.Encode(tr, why)
	if err != nil {
		return Reply{}, err
	}
	return pgtx.Refuse(reply)
}
