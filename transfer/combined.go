// SPDX-License-Identifier: MIT

package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/combine"
	"shop/locking/idempotency/pgtx"
)

// nameCombined is the strategy of this file.
const nameCombined = "combined"

// The bounds of a batch. So many transfers become unknown together if their COMMIT is not answered. trust is how
// much of the lease must be left when a batch begins: the wait for a key (pgtx.BatchKeyWait), and several times what its
// transaction takes. One that takes longer is not wrong: the guard has locked the rows.
const (
	batchMax = 512
	trust    = 300 * time.Millisecond
)

// combined takes the etcd lock once for all transfers that wait in this process for the same accounts, and applies
// them in one transaction: each row is guarded, locked and written once. It is right for the reasons for which
// etcd-fenced is. See package combine for how requests wait and what becomes of them.
//
// # Which transfers wait together
//
// A transfer needs two accounts, and a queue is one of a set of accounts. There are two kinds of set. The
// accounts of Config.Hot are one set: transfers between any two of them wait in one queue, under a lease of
// all of them, and a batch may move money around a circle. Any other pair of accounts is a set of its own. Two
// sets that overlap exclude each other at the lock store, and their rows are locked in the same order.
//
// Transfers are applied in memory in the order of arrival, each with the balances that those before it
// left, and an entry with its own version of each account. One that the balance does not cover is refused, alone.
//
// Holds go the way of etcd-fenced, and so does a transfer whose payer has holds that may have expired.
func (s *Service) combined(ctx context.Context, o *operation) (Reply, error) {
	if o.move == nil {
		return s.etcdFenced(ctx, o)
	}
	err := s.allowed(ctx)
	if err == nil {
		var reply Reply
		if reply, err = s.combiner.Do(ctx, o, s.waitsFor(o)...); err == nil {
			return reply, nil
		}
	}
	if errors.Is(err, locking.ErrOutcomeUnknown) {
		o.Doubt()
	}
	// No batch has looked up the key for certain, and an error would say that nothing was done.
	if reply, found, lookErr := s.db.Lookup(ctx, o.Request); found {
		return reply, lookErr
	}
	switch {
	case errors.Is(err, errAlone):
		o.KeyWait = pgtx.BatchKeyWait // the batches that follow wait for the rows
		return s.etcdFenced(ctx, o)
	case o.Unknown():
		return s.etcdFenced(ctx, o) // its lease has a newer fence, and the key decides
	case ctx.Err() != nil, errors.Is(err, combine.ErrNoLease):
		return Reply{}, s.noLease(ctx, err)
	}
	return Reply{}, err
}

// errAlone is the result of a transfer that needs a transaction of its own.
var errAlone = errors.New("transfer: not in a batch")

// waitsFor returns the names of the accounts whose queue an operation joins.
func (s *Service) waitsFor(o *operation) []string {
	if !s.hot(*o.move) {
		return o.lockNames()
	}
	names := make([]string, len(s.cfg.Hot))
	for n, id := range s.cfg.Hot {
		names[n] = "account/" + id.String()
	}
	return names
}

// Close waits until the transfers that wait for a batch are answered, and its lock is released. Call it before the
// lock store is closed, and send no more transfers.
func (s *Service) Close() {
	if s.combiner != nil {
		s.combiner.Close()
	}
}

// Queued returns how many transfers wait for a batch.
func (s *Service) Queued() int { return s.combiner.Queued() }

func (s *Service) newCombiner() (*combine.Combiner[*operation, Reply], error) {
	own := *s
	own.cfg.Strategy = nameCombined // what a batch counts, whatever the strategy of its transfers is
	return combine.New(combine.Config[*operation, Reply]{
		Store: s.cfg.Locks, Lock: s.cfg.Lock, Trust: trust, MaxBatch: batchMax, Apply: own.moveBatch,
		Guarded: true,
		Log:     s.cfg.Log,
		Merged:  Reply.Again,
		Key:     func(o *operation) string { return string(o.Client[:]) + o.Key + string(o.Fingerprint[:]) },
	})
}

// moveBatch applies transfers in one transaction, whose guards have the fence of the lease.
func (s *Service) moveBatch(ctx context.Context, l locking.Lease, waiting []*operation) ([]combine.Result[Reply], error) {
	if l.Fence <= 0 {
		return nil, errUnfenced
	}
	requests := make([]*pgtx.Op, len(waiting))
	for n, o := range waiting {
		requests[n] = &o.Op
	}
	var b *batch
	results, err := s.db.RunAll(ctx, nameCombined, requests, func(tx *pgtx.Tx) {
		b = &batch{Tx: tx, s: s, fence: l.Fence}
		b.guard(waiting)
	}, func(ctx context.Context, tx *pgtx.Tx, open []int) ([]pgtx.Result, error) {
		if err := tx.Step(ctx, AfterGuard); err != nil {
			return nil, err
		}
		made := make([]pgtx.Result, len(open))
		for i, n := range open {
			reply, err := b.decide(ctx, waiting[n])
			if err != nil && !alone(err) {
				return nil, err
			}
			made[i] = pgtx.Result{Reply: reply, Err: err}
		}
		b.record()
		return made, nil
	})
	answers := make([]combine.Result[Reply], len(waiting))
	switch {
	case err == nil:
		for n, r := range results {
			answers[n] = combine.Result[Reply]{Answer: r.Reply, Err: r.Err}
		}
		return answers, nil
	case pgtx.OfOne(err) && !errors.Is(err, ErrEpoch):
		return nil, combine.OfOne(errAlone)
	}
	return nil, err
}

// alone reports whether an error concerns one transfer, and not the transaction.
func alone(err error) bool {
	return errors.Is(err, errAlone) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrForbidden) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrEpoch)
}

// batch is the transaction of several transfers.
type batch struct {
	*pgtx.Tx
	s     *Service
	fence locking.Fence
	reads []*[]versioned
	moved []moved
	notes []entry
	now   time.Time
}

// versioned is an account with the number of writes to it.
type versioned struct {
	account
	Version int64
	changed bool
}

// moved is a transfer that was accepted, and the key of its request.
type moved struct {
	Transfer
	key string
}

// entry is a row of ledger_entries.
type entry struct {
	transfer, account uuid.UUID
	delta, version    int64
}

// guard queues the guard of etcd-fenced for each account, in id order.
func (b *batch) guard(waiting []*operation) {
	var ids []uuid.UUID
	for _, o := range waiting {
		ids = append(ids, o.from, o.to)
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	for _, id := range slices.Compact(ids) {
		b.reads = append(b.reads, pgtx.QueueRows[versioned](b.Tx, `
			UPDATE accounts
			SET fence = $2, fence_epoch = $3
			WHERE id = $1
			AND (fence_epoch = '' OR fence_epoch = $3 AND fence <= $2)
			RETURNING id, owner_id, currency, balance, held, clock_timestamp(), version`, id, int64(b.fence), b.s.cfg.Epoch))
	}
}

func (b *batch) find(id uuid.UUID) *versioned {
	for _, rows := range b.reads {
		if len(*rows) > 0 && (*rows)[0].ID == id {
			return &(*rows)[0]
		}
	}
	return nil
}

// decide decides one transfer from the balances that those before it left, as move does.
func (b *batch) decide(ctx context.Context, o *operation) (Reply, error) {
	from, to := b.find(o.from), b.find(o.to)
	if from == nil || to == nil {
		missed := fmt.Errorf("%w: account %s or %s", ErrNotFound, o.from, o.to)
		if from != nil && from.Owner != o.Client {
			missed = fmt.Errorf("%w: %s", ErrForbidden, o.from)
		}
		return Reply{}, (&attempt{Tx: b.Tx, operation: o, s: b.s, fence: b.fence, epoch: b.s.cfg.Epoch}).explainMiss(ctx, missed)
	}
	if from.Owner != o.Client {
		return Reply{}, fmt.Errorf("%w: %s", ErrForbidden, o.from)
	}
	if err := o.move.validate(&from.account, &to.account); err != nil {
		return Reply{}, err
	}
	amount, available := o.move.Amount, from.Balance-from.Held
	from.At, to.At = b.tick(), b.tick()
	tr := o.move.transfer(o, &from.account, &to.account, 0)
	if missing := amount - available; missing > 0 {
		if from.Held >= missing {
			return Reply{}, errAlone
		}
		return b.s.cfg.Encode(tr, &InsufficientFundsError{from.ID, amount, available})
	}
	reply, err := b.s.cfg.Encode(tr, nil)
	if err != nil {
		return Reply{}, err
	}
	from.apply(-amount)
	to.apply(amount)
	b.moved = append(b.moved, moved{tr, o.Key})
	b.notes = append(b.notes, entry{tr.ID, from.ID, -amount, from.Version}, entry{tr.ID, to.ID, amount, to.Version})
	return reply, nil
}

// tick returns a later time at each call, from the time on at which all rows were read: the times of the transfers are in
// the order in which they were applied.
func (b *batch) tick() time.Time {
	for _, rows := range b.reads {
		for _, a := range *rows {
			if a.At.After(b.now) {
				b.now = a.At
			}
		}
	}
	b.now = b.now.Add(time.Microsecond) // the database's precision
	return b.now
}

func (v *versioned) apply(delta int64) {
	v.Balance += delta
	v.Version++
	v.changed = true
}

// record queues what attempt.record and attempt.save queue for one transfer, for all of them. The guards have locked the
// accounts, so the order in which one statement writes them does not matter.
func (b *batch) record() {
	if len(b.moved) == 0 {
		return
	}
	var written [][16]byte
	var balances, writes []int64
	for _, rows := range b.reads {
		for _, a := range *rows {
			if a.changed {
				written, balances, writes = append(written, a.ID), append(balances, a.Balance), append(writes, a.Version)
			}
		}
	}
	b.Queue(`
		UPDATE accounts
		SET balance = a.balance, version = a.version
		FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS a (id, balance, version)
		WHERE accounts.id = a.id`, written, balances, writes)
	n := len(b.moved)
	ids, clients, keys, times := make([][16]byte, n), make([][16]byte, n), make([]string, n), make([]time.Time, n)
	from, to, amounts, currencies := make([][16]byte, n), make([][16]byte, n), make([]int64, n), make([]string, n)
	for i, tr := range b.moved {
		ids[i], clients[i], from[i], to[i] = tr.ID, tr.Client, tr.From, tr.To
		keys[i], amounts[i], currencies[i], times[i] = tr.key, tr.Amount, tr.Currency, tr.CreatedAt
	}
	b.Queue(`
		INSERT INTO transfers (id, client_id, idempotency_key, from_id, to_id, amount, currency, state, settled, created_at, ended_at)
		SELECT t.id, t.client_id, t.key, t.from_id, t.to_id, t.amount, t.currency, 'posted', t.amount, t.at, t.at
		FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::uuid[], $6::bigint[], $7::text[], $8::timestamptz[])
			AS t (id, client_id, key, from_id, to_id, amount, currency, at)`,
		ids, clients, keys, from, to, amounts, currencies, times)
	transfers, accounts := make([][16]byte, len(b.notes)), make([][16]byte, len(b.notes))
	deltas, versions := make([]int64, len(b.notes)), make([]int64, len(b.notes))
	for i, e := range b.notes {
		transfers[i], accounts[i], deltas[i], versions[i] = e.transfer, e.account, e.delta, e.version
	}
	b.Queue(`
		INSERT INTO ledger_entries (transfer_id, account_id, delta, account_version, fence, fence_epoch)
		SELECT e.*, $5, $6
		FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[]) AS e`,
		transfers, accounts, deltas, versions, int64(b.fence), b.s.cfg.Epoch)
}
