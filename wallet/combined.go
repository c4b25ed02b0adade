// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/locking"
	"shop/locking/combine"
)

// nameCombined is the strategy of this file.
const nameCombined = "combined"

// batchMax is how many operations share a transaction. So many calls of the bonus service are made side by side,
// and so many operations become unknown together if their commit is not answered.
const batchMax = 128

// combined runs the credits and debits of a wallet that wait in this process in one transaction: one lock, one
// lookup of all keys, one update of the wallet, one commit. It is right for the reasons for which lockid is. See
// package combine for how requests wait and what becomes of them.
//
// Each operation is decided alone, in the order of arrival, with the balance that those before it left: a debit
// that the balance does not cover is refused, and the smaller one behind it is not. The bonus service is called for
// all credits of a batch side by side. A credit whose call fails has no effect; the others do. The answer is kept with the
// request, so that a transaction that is run again calls for no credit a second time.
//
// # The lock
//
// What excludes the other processes is ForUpdate, in the transaction itself, as under lockid. The lease of the Combiner
// is the turn in the queue of this process (turns), with the runs and gaps by which processes share a wallet. If the
// commit of a batch stays unknown, its session is ended at the server (abandon), and the batch is applied again. It finds
// its operations, or it has the lock, and they are not there and never will be (package documentation).
//
// # Not in a batch
//
// A payment needs two wallets. It belongs to two queues, and one that waited at the head of both would hold up the
// batches of each. It goes the way of lockid, and so does an operation that needs a transaction of its own (errAlone).
func (s *Service) combined(ctx context.Context, o *operation) (Reply, error) {
	if o.intent.To != nil {
		return s.lockID(ctx, o)
	}
	reply, err := s.combiner.Do(ctx, o, o.intent.Wallet.String())
	switch {
	case err == nil:
		return reply, nil
	case errors.Is(err, combine.ErrFull):
		s.count(QueueFull, s.method.Name)
	case errors.Is(err, locking.ErrOutcomeUnknown):
		o.unknown = true
	}
	if ctx.Err() == nil && (o.unknown || errors.Is(err, errAlone)) {
		return s.lockID(ctx, o) // lock and key decide it
	}
	return Reply{}, toPublic(ctx, err)
}

// errAlone is the result of an operation that needs a transaction of its own.
var errAlone = errors.New("wallet: not in a batch")

// Close waits until the operations that wait for a batch are answered. Call it before the client of the database
// is disconnected, and send no more operations.
func (s *Service) Close() { s.combiner.Close() }

// Queued returns how many operations wait for a batch, or for their turn at a wallet.
func (s *Service) Queued() int {
	n := s.combiner.Queued()
	if s.queues != nil {
		n += s.queues.Waiting()
	}
	return n
}

func (s *Service) newCombiner(queueMax int, log *slog.Logger) (*combine.Combiner[*operation, Reply], error) {
	own, err := s.With(nameCombined) // what a batch counts, whatever the strategy of its operations is
	if err != nil {
		return nil, err
	}
	own.turns = &turns{Service: own, held: map[string]func(){}}
	return combine.New(combine.Config[*operation, Reply]{
		Store: own.turns, MaxBatch: batchMax, MaxQueue: max(queueMax, 0), Apply: own.applyBatch, Log: log,
		MaxTurn: runShared, Pause: time.Nanosecond, // the queue has gaps of its own
		MaxBatchTime: time.Minute, // the slowest call of the bonus service decides how long a batch takes, not its size
		Merged:       Reply.Again,
		Key:          func(o *operation) string { return string(o.intent.ID[:]) + string(o.req.Fingerprint[:]) },
	})
}

// applyBatch applies operations on one wallet in one transaction.
func (s *Service) applyBatch(ctx context.Context, l locking.Lease, batch []*operation) (results []combine.Result[Reply], err error) {
	bounded, cancel := context.WithTimeoutCause(ctx, RequestTimeout, errRequestTimeout)
	defer cancel()
	inDoubt := true // after a panic too
	defer func() {
		if inDoubt { // then the Combiner does not release: what comes next waits for ForUpdate instead
			_ = s.turns.Release(ctx, l)
		}
	}()
	if err := s.step(bounded, AfterAcquire); err != nil {
		return nil, err
	}
	whole := &operation{intent: Operation{Wallet: batch[0].intent.Wallet}, batch: true}
	_, err = s.transact(bounded, whole, func(ctx context.Context) (Reply, error) {
		var err error
		results, err = s.runTogether(ctx, whole, batch) // those of the last run stand: transact succeeds if its commit does
		return Reply{}, err
	})
	for _, o := range batch {
		o.unknown = o.unknown || whole.unknown
	}
	inDoubt = err != nil && (whole.unknown || errors.Is(err, locking.ErrLost)) // the second makes a batch of two halves unknown
	switch {
	case err == nil:
		return results, nil
	case whole.unknown:
		return nil, fmt.Errorf("%w: %w", locking.ErrOutcomeUnknown, err)
	case bounded.Err() != nil, errors.Is(err, locking.ErrBusy):
		return nil, err
	}
	return nil, combine.OfOne(err)
}

// runTogether is the callback of the transaction: what lockid and finish do, for several operations.
func (s *Service) runTogether(ctx context.Context, whole *operation, waiting []*operation) ([]combine.Result[Reply], error) {
	wallets, err := s.lock(ctx, whole)
	if err != nil {
		return nil, err
	}
	if err := s.step(ctx, AfterGuard); err != nil {
		return nil, err
	}
	b := &batch{Service: s, wallet: wallets[0], waiting: waiting, results: make([]combine.Result[Reply], len(waiting)), done: make([]bool, len(waiting))}
	if err := b.lookup(ctx); err != nil {
		return nil, err
	}
	b.call(ctx, whole.attempt)
	b.decide()
	return b.results, b.record(ctx)
}

// batch is one run of a transaction of several operations.
type batch struct {
	*Service
	wallet  Wallet // with the balance after those that were decided
	waiting []*operation
	results []combine.Result[Reply]
	done    []bool // has its result
	made    []made
}

// made is an operation that this transaction stores, as done or as refused.
type made struct {
	at      int // in waiting
	op      Operation
	refusal error // nil: it is done
}

// end gives a request its result.
func (b *batch) end(at int, reply Reply, err error) {
	b.results[at], b.done[at] = combine.Result[Reply]{Answer: reply, Err: err}, true
}

// lookup finds the answers that are stored under the keys. Under the lock, "not found" is final, as in lookupReply. Of
// two different requests under one key, the second needs a transaction of its own: it finds what became of the first.
func (b *batch) lookup(ctx context.Context) error {
	ids := make([]uuid.UUID, len(b.waiting))
	for i, o := range b.waiting {
		ids[i] = o.intent.ID
	}
	var found []record
	cursor, err := b.operations.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}, options.Find().SetBatchSize(batchMax+1))
	if err == nil {
		err = cursor.All(ctx, &found)
	}
	if err != nil {
		return classify("look up the keys", err)
	}
	stored, first := map[uuid.UUID]record{}, map[uuid.UUID]bool{}
	for _, r := range found {
		stored[r.ID] = r
	}
	for i, o := range b.waiting {
		id := o.intent.ID
		if r, is := stored[id]; is {
			reply, err := r.reply(o.req)
			b.end(i, reply, err)
		} else if first[id] {
			b.end(i, Reply{}, errAlone)
		}
		first[id] = true
	}
	return nil
}

// call calls the bonus service for all credits that have no bonus yet, side by side. It does not call for a credit
// for which the wallet has no room if all bonuses before it are as large as they may be: that needs a transaction of its own.
func (b *batch) call(ctx context.Context, attempt int) {
	var all sync.WaitGroup
	panicked := make(chan any, len(b.waiting))
	failed := make([]error, len(b.waiting))
	most := b.wallet
	for i, o := range b.waiting {
		if b.done[i] || o.intent.Kind != Credit {
			continue
		}
		if o.validate([]Wallet{most}) != nil {
			b.end(i, Reply{}, errAlone)
			continue
		}
		most.Balance += o.intent.Amount + AmountMax
		if o.bonus != nil {
			continue
		}
		o.attempt = attempt
		all.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panicked <- p
				}
			}()
			var bonus int64
			if bonus, failed[i] = b.callBonus(ctx, o); failed[i] == nil {
				o.bonus = &bonus
			}
		})
	}
	all.Wait()
	select {
	case p := <-panicked:
		panic(p) // the Combiner tries each operation alone
	default:
	}
	for i, err := range failed {
		if err != nil {
			b.end(i, Reply{}, err)
		}
	}
}

// decide decides the operations in their order, each with the balance that those before it left.
func (b *batch) decide() {
	for i, o := range b.waiting {
		if b.done[i] {
			continue
		}
		op := o.intent
		err := o.validate([]Wallet{b.wallet})
		switch {
		case errors.Is(err, ErrInsufficientFunds):
			b.made = append(b.made, made{i, op, err})
		case err != nil:
			b.end(i, Reply{}, err)
		default:
			if o.bonus != nil {
				op.Bonus = *o.bonus
			}
			b.wallet.Balance += op.delta(b.wallet.ID)
			b.made = append(b.made, made{i, op, nil})
		}
	}
}

// record writes the wallet once, and inserts what insert and refused insert for each operation.
func (b *batch) record(ctx context.Context) error {
	if len(b.made) == 0 {
		return nil
	}
	if err := b.save(ctx, &b.wallet, b.wallet.Balance); err != nil {
		return err
	}
	var entries []Entry
	records := make([]record, len(b.made))
	for n, m := range b.made {
		op, refused := m.op, ""
		op.Currency, op.CreatedAt = b.wallet.Currency, b.wallet.UpdatedAt.UTC()
		reply, err := b.encode(op, m.refusal)
		if err != nil {
			return fmt.Errorf("wallet: encode: %w", err)
		}
		if m.refusal != nil {
			refused = m.refusal.Error()
		} else {
			entries = append(entries, Entry{Operation: op.ID, Wallet: b.wallet.ID, Delta: op.delta(b.wallet.ID), CreatedAt: op.CreatedAt})
		}
		records[n] = newRecord(b.waiting[m.at].req, op, reply, refused)
		b.end(m.at, reply, nil)
	}
	if len(entries) > 0 {
		if _, err := b.entries.InsertMany(ctx, entries); err != nil {
			return classify("insert entries", err)
		}
	}
	_, err := b.operations.InsertMany(ctx, records)
	return classify("insert operations", err)
}
