package inventory

import (
	"context"

	"shop/locking/idempotency/pgtx"
)

// row: SELECT … FOR UPDATE, then write. Safe without any other lock.
//
// The lock is the row itself: no code can forget it or lose it, and PostgreSQL
// always knows of it, since it lives and dies with the transaction. The second
// buyer waits inside the SELECT, and then reads what the first committed.
func (s *Service) row(ctx context.Context, p *purchase) (Reply, error) {
	return s.run(ctx, p.Op, func(ctx context.Context, tx *pgtx.Tx) (Reply, error) {
		// ORDER BY sorts before it locks, by a key that never changes: all buyers
		// lock in the same order, and none waits for another in a circle. FOR UPDATE
		// returns the newest committed version of each row, also after a wait; FOR
		// NO KEY UPDATE would do as well, and let foreign keys to products through.
		_, order, err := p.readAndDecide(ctx, tx, `
			SELECT sku, price, currency, stock, version, now()
			FROM products
			WHERE sku = ANY($1)
			ORDER BY sku
			FOR UPDATE`)
		if err != nil {
			return Reply{}, err
		}
		p.take(tx)
		return s.record(tx, p, order)
	})
}
