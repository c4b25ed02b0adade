// SPDX-License-Identifier: MIT

package inventory

import (
	"context"

	"shop/locking/idempotency/pgtx"
)

// row runs SELECT … FOR UPDATE, and then writes. Safe without any other lock.
//
// The lock is the row itself. It cannot be lost: PostgreSQL holds it until the transaction ends. The second buyer waits
// inside the SELECT, and then reads what the first one committed.
func (s *Service) row(ctx context.Context, p *purchase) (Reply, error) {
	return s.run(ctx, p.Op, func(ctx context.Context, tx *pgtx.Tx) (Reply, error) {
		// PostgreSQL sorts before it locks, and the sort key never changes: all buyers lock in the same order and cannot
		// deadlock. FOR UPDATE returns the newest committed version of each row, even after a wait. FOR NO KEY UPDATE
		// would also be correct, and would not block foreign key checks on products.
		items, order, err := p.readAndDecide(ctx, tx, `
			SELECT sku, price, currency, stock, version, client_max, now()
			FROM products
			WHERE sku = ANY($1)
			ORDER BY sku
			FOR UPDATE`)
		if err != nil {
			return Reply{}, err
		}
		p.take(tx)
		return s.record(ctx, tx, p, items, order)
	})
}
