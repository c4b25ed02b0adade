// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"slices"

	"shop/locking/idempotency/pgtx"
)

// atomic checks and writes in one statement. Right.
//
// The condition is part of the UPDATE. If another transaction holds the row, the UPDATE
// waits until it ends and then checks the condition again on the current row, so
// nothing can happen between reading and writing. It cannot run Go code between the
// two; see row for that.
func (s *Service) atomic(ctx context.Context, p *purchase) (Reply, error) {
	return s.run(ctx, p.Op, func(ctx context.Context, tx *pgtx.Tx) (Reply, error) {
		// One statement for each line, in order of sku: a single UPDATE of all lines
		// would lock in the order of its plan, and could deadlock with another one.
		answers := make([]*[]item, len(p.lines))
		for n, l := range p.lines {
			answers[n] = pgtx.QueueRows[item](tx, `
				UPDATE products
				SET stock = stock - $2, version = version + 1
				WHERE sku = $1
				AND stock >= $2
				RETURNING sku, price, currency, stock, version, client_max, now()`, l.SKU, l.Quantity)
		}
		if err := tx.Flush(ctx); err != nil {
			return Reply{}, err
		}
		if err := tx.Step(ctx, AfterGuard); err != nil {
			return Reply{}, err
		}
		var taken []item
		for _, rows := range answers {
			taken = append(taken, *rows...)
		}
		if len(taken) < len(p.lines) {
			return Reply{}, p.explainMiss(ctx, tx, taken)
		}
		order, err := p.price(taken)
		if err != nil {
			return Reply{}, err
		}
		return s.record(ctx, tx, p, taken, order)
	})
}

// explainMiss finds out why an UPDATE matched no row: the product may be unknown, or
// its stock too low.
func (p *purchase) explainMiss(ctx context.Context, tx *pgtx.Tx, taken []item) error {
	rest, err := pgtx.Select[item](ctx, tx, `
		SELECT sku, price, currency, stock, version, client_max, now()
		FROM products
		WHERE sku = ANY($1)`, p.skus)
	if err != nil {
		return err
	}
	rest = slices.DeleteFunc(rest, func(i item) bool { return find(taken, i.SKU) != nil })
	if _, err := p.price(slices.Concat(taken, rest)); err != nil {
		return err
	}
	for _, l := range p.lines {
		if i := find(rest, l.SKU); i != nil && i.Stock < l.Quantity {
			return &OutOfStockError{SKU: l.SKU, Wanted: l.Quantity, Left: i.Stock}
		}
	}
	return pgtx.ErrRetry // the stock suffices again
}
