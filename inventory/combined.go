// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"shop/locking"
	"shop/locking/combine"
	"shop/locking/idempotency/pgtx"
)

// BatchTrust is how much of a lease must be left when a batch begins: the longest wait for a key, which is sent together
// with COMMIT, and several times what COMMIT takes. With less, a batch that waits for a key could end as unknown instead of
// ErrInProgress. The TTL must be longer. The row lock decides, so a batch that outlives its lease is not wrong: it is
// rolled back or it stands, as any other.
const BatchTrust = pgtx.BatchKeyWait + 100*time.Millisecond

// batchMax is how many purchases share a transaction: so many become unknown together if its COMMIT is not answered.
const batchMax = 512

// combined takes the Redis lock of a product once for all purchases of it that wait in this process, and
// applies them in one transaction: the row is locked once, and there is one fsync. Right, and for a hot product
// many times faster. See package combine for how requests wait and what becomes of them.
//
// Each purchase is decided alone, in the order of arrival: one that wants more than is left does not refuse the
// smaller one behind it. Each has its own key and its own reply. The keys of refusals are committed with the others,
// while the row is locked: one fsync for a batch, where the other strategies unlock the row first (pgtx.Refuse).
//
// A purchase of several products goes the way of redis+row. It belongs to several queues, and one that waited at
// the head of all of them would hold up the batches of each. It takes the same locks in the same order.
func (s *Service) combined(ctx context.Context, p *purchase) (Reply, error) {
	if len(p.skus) > 1 {
		return s.redisRow(ctx, p)
	}
	err := s.breaker.Allow(ctx)
	if err != nil {
		err = fmt.Errorf("%w: %w", combine.ErrNoLease, err)
	} else if reply, doErr := s.combiner.Do(ctx, p, "product/"+p.skus[0]); doErr == nil { // the key of redis+row
		return reply, nil
	} else if err = doErr; errors.Is(err, combine.ErrNoLease) && !errors.Is(err, locking.ErrBusy) {
		s.breaker.Failed(err)
	}
	if errors.Is(err, locking.ErrOutcomeUnknown) {
		p.Doubt()
	}
	// No batch has looked up the key for certain, and an error would say that nothing was done.
	if reply, found, lookErr := s.db.Lookup(ctx, p.Request); found {
		return reply, lookErr
	}
	switch {
	case errors.Is(err, errAlone), p.Unknown():
		return s.decideAlone(ctx, p, err)
	case ctx.Err() != nil:
		return Reply{}, context.Cause(ctx)
	case errors.Is(err, combine.ErrNoLease):
		return s.rowAlone(ctx, p, err)
	}
	return Reply{}, err
}

// decideAlone runs row for a purchase that cannot be in a batch, or whose batch ended as unknown: row lock and key decide
// it. A batch may have many of these, so they take slots: they would occupy all connections while they wait for one row.
func (s *Service) decideAlone(ctx context.Context, p *purchase, why error) (Reply, error) {
	leave, err := s.slot(ctx, p, pgtx.LockTimeout)
	switch {
	case err != nil && p.Unknown(): // "busy" would claim that nothing happened
		return Reply{}, fmt.Errorf("%w; then %v", why, err)
	case err != nil:
		return Reply{}, fmt.Errorf("%w; then %w", why, err)
	}
	defer leave()
	if !p.Unknown() {
		p.KeyWait = pgtx.BatchKeyWait // the batches that follow wait for the row
	}
	return s.row(ctx, p)
}

// Close waits until the purchases that wait for a batch are answered, and its lock is released. Call it before the
// lock store is closed, and send no more purchases.
func (s *Service) Close() {
	if s.combiner != nil {
		s.combiner.Close()
	}
}

// Queued returns how many purchases wait for a batch.
func (s *Service) Queued() int { return s.combiner.Queued() }

func (s *Service) newCombiner() (*combine.Combiner[*purchase, Reply], error) {
	return combine.New(combine.Config[*purchase, Reply]{
		Store: s.cfg.Locks, Lock: s.cfg.Lock, Trust: BatchTrust, MaxBatch: batchMax, Apply: s.buyBatch,
		Guarded: true,
		Log:     s.cfg.Log,
		Merged:  Reply.Again,
		Key:     func(p *purchase) string { return string(p.Client[:]) + p.Key + string(p.Fingerprint[:]) },
	})
}

// errAlone is the result of a purchase that failed as a batch of its own. It goes on without the lock, beside the
// batches that follow.
var errAlone = errors.New("inventory: the purchase cannot be in a batch")

// buyBatch runs purchases of one product in one transaction.
func (s *Service) buyBatch(ctx context.Context, _ locking.Lease, batch []*purchase) ([]combine.Result[Reply], error) {
	requests := make([]*pgtx.Op, len(batch))
	for n, p := range batch {
		requests[n] = p.Op
	}
	var items *[]item
	results, err := s.db.RunAll(ctx, nameCombined, requests, func(tx *pgtx.Tx) {
		items = pgtx.QueueRows[item](tx, `
			SELECT sku, price, currency, stock, version, client_max, now()
			FROM products
			WHERE sku = $1
			FOR UPDATE`, batch[0].skus[0])
	}, func(ctx context.Context, tx *pgtx.Tx, open []int) ([]pgtx.Result, error) {
		if err := tx.Step(ctx, AfterGuard); err != nil {
			return nil, err
		}
		limits, err := readLimits(ctx, tx, *items, batch...)
		if err != nil {
			return nil, err
		}
		made, sold := s.decideAll(batch, open, *items, limits)
		if len(sold) > 0 {
			takeAll(tx, sold)
			recordSales(tx, sold...)
		}
		limits.record(tx)
		return made, nil
	})
	answers := make([]combine.Result[Reply], len(batch))
	switch {
	case err == nil:
		for n, r := range results {
			answers[n] = combine.Result[Reply]{Answer: r.Reply, Err: r.Err}
		}
		return answers, nil
	case pgtx.OfOne(err):
		return nil, combine.OfOne(errAlone)
	}
	return nil, err
}

// decideAll decides the open purchases in their order, each with the stock and the limits that those before it left.
func (s *Service) decideAll(batch []*purchase, open []int, items []item, limits limits) (made []pgtx.Result, sold []sale) {
	made = make([]pgtx.Result, len(open))
	for i, n := range open {
		p := batch[n]
		order, err := p.decide(items)
		if err == nil {
			err = limits.check(p)
		}
		switch {
		case err == nil:
			made[i].Reply, made[i].Err = s.cfg.Encode(order, nil)
		case isRefusal(err):
			made[i].Reply, made[i].Err = s.cfg.Encode(Order{}, err)
		default:
			made[i].Err = err
		}
		if err == nil && made[i].Err == nil {
			items[0].Stock -= p.lines[0].Quantity
			limits.take(p)
			sold = append(sold, sale{p, order})
		}
	}
	return made, sold
}

// takeAll queues what take queues for each of the purchases, in one statement.
func takeAll(tx *pgtx.Tx, sold []sale) {
	total := int64(0)
	for _, s := range sold {
		total += s.lines[0].Quantity
	}
	tx.Queue(`
		UPDATE products
		SET stock = stock - $2, version = version + 1
		WHERE sku = $1`, sold[0].skus[0], total)
}
