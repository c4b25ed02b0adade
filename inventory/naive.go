// SPDX-License-Identifier: MIT

package inventory

import (
	"context"

	"shop/locking/idempotency/pgtx"
)

// naive reads, checks, and writes the computed value. Wrong.
//
// Two buyers read a stock of 1, both find that it suffices, and both write 0: one
// unit is sold twice. The transaction does not help: READ COMMITTED lets both read
// before either writes. CHECK (stock >= 0) does not help: neither writes less
// than 0. The code passes every test with one buyer at a time.
func (s *Service) naive(ctx context.Context, p *purchase) (Reply, error) {
	return s.run(ctx, p.Op, func(ctx context.Context, tx *pgtx.Tx) (Reply, error) {
		items, order, err := p.readAndDecide(ctx, tx, `
			SELECT sku, price, currency, stock, version, client_max, now()
			FROM products
			WHERE sku = ANY($1)`) // no lock: another purchase may change the rows at once
		if err != nil {
			return Reply{}, err
		}
		for _, l := range p.lines {
			// The mistake: a value computed outside of the database, which undoes concurrent purchases.
			tx.Queue(`
				UPDATE products
				SET stock = $2, version = version + 1
				WHERE sku = $1`, l.SKU, find(items, l.SKU).Stock-l.Quantity)
		}
		tx.KeyHere()
		return s.record(ctx, tx, p, items, order)
	})
}
