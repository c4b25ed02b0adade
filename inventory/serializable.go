// SPDX-License-Identifier: MIT

package inventory

import (
	"context"

	"shop/locking/idempotency/pgtx"
)

// serializable leaves conflict detection to the database. Right, if every 40001 is retried.
//
// At SERIALIZABLE, PostgreSQL commits only transactions that could have run one at a
// time. The read is naive's; a purchase that would have oversold fails with 40001
// instead, and the whole transaction runs again, reads included. On a hot row this
// happens to most purchases. On a small table the planner scans the whole table, so
// buyers of different products conflict as well.
func (s *Service) serializable(ctx context.Context, p *purchase) (Reply, error) {
	p.Begin = pgtx.BeginSerializable
	return s.run(ctx, p.Op, func(ctx context.Context, tx *pgtx.Tx) (Reply, error) {
		items, order, err := p.readAndDecide(ctx, tx, `
			SELECT sku, price, currency, stock, version, client_max, now()
			FROM products
			WHERE sku = ANY($1)`)
		if err != nil {
			return Reply{}, err
		}
		p.take(tx) // 40001 here, or at COMMIT
		return s.record(ctx, tx, p, items, order)
	})
}
