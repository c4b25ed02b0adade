package inventory

import (
	"context"
	"slices"

	"shop/locking/idempotency/pgtx"
)

// atomic: check and write in one statement. Right.
//
// The condition is part of the UPDATE. If another buyer holds the row, UPDATE
// waits for its end and then checks the condition again, on the row as it is then:
// there is no moment between reading and writing. What it cannot do is run Go
// code between the two; where that is needed, see row.
func (s *Service) atomic(ctx context.Context, p *purchase) (Reply, error) {
	return s.run(ctx, p.Op, func(ctx context.Context, tx *pgtx.Tx) (Reply, error) {
		// One statement for each line, in order of sku: a single UPDATE over all
		// of them would lock in the order of its plan, and deadlock with its mirror image.
		answers := make([]*[]item, len(p.lines))
		for n, l := range p.lines {
			answers[n] = pgtx.Query[item](tx, `
				UPDATE products
				SET stock = stock - $2, version = version + 1
				WHERE sku = $1
				AND stock >= $2
				RETURNING sku, price, currency, stock, version, now()`, l.SKU, l.Quantity)
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
		return s.record(tx, p, order)
	})
}

// explainMiss reads the lines that were not taken. That an UPDATE found no row
// does not say why: the product may be unknown, or short.
func (p *purchase) explainMiss(ctx context.Context, tx *pgtx.Tx, taken []item) error {
	rest, err := pgtx.Select[item](ctx, tx, `
		SELECT sku, price, currency, stock, version, now()
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
	return pgtx.ErrRetry // there is enough again
}
