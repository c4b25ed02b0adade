package inventory

import (
	"context"

	"shop/locking/idempotency/pgtx"
)

// naive: read, check, write what was computed. Wrong.
//
// Two buyers read "1 left", both find that it suffices, both write 0: one piece
// is sold twice. The transaction does not help: READ COMMITTED lets both read
// before either writes. CHECK (stock >= 0) does not help: neither writes less
// than 0. It passes every test with one buyer at a time.
func (s *Service) naive(ctx context.Context, p *purchase) (Reply, error) {
	return s.run(ctx, p.Op, func(ctx context.Context, tx *pgtx.Tx) (Reply, error) {
		items, order, err := p.readAndDecide(ctx, tx, `
			SELECT sku, price, currency, stock, version, now()
			FROM products
			WHERE sku = ANY($1)`) // no lock: another purchase may change it at once
		if err != nil {
			return Reply{}, err
		}
		for _, l := range p.lines {
			// The mistake: a value that was computed outside, and puts back what other purchases took meanwhile.
			tx.Exec(`
				UPDATE products
				SET stock = $2, version = version + 1
				WHERE sku = $1`, l.SKU, find(items, l.SKU).Stock-l.Quantity)
		}
		tx.KeyHere()
		return s.record(tx, p, order)
	})
}
