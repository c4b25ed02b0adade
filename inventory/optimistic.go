// SPDX-License-Identifier: MIT

package inventory

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"

	"shop/locking/idempotency/pgtx"
)

// optimistic reads without a lock, and writes only if the row has not changed. Right.
//
// Every writer of a product increments its version, Cancel included. If the version has
// changed since it was read, the UPDATE matches no row and the whole purchase runs
// again. No purchase waits, but on a hot row most attempts are wasted, so the number
// of attempts is bounded. Good where conflicts are rare.
func (s *Service) optimistic(ctx context.Context, p *purchase) (Reply, error) {
	return s.run(ctx, p.Op, func(ctx context.Context, tx *pgtx.Tx) (Reply, error) {
		items, order, err := p.readAndDecide(ctx, tx, `
			SELECT sku, price, currency, stock, version, client_max, now()
			FROM products
			WHERE sku = ANY($1)`)
		if err != nil {
			return Reply{}, err
		}
		var writes []*pgconn.CommandTag
		for _, l := range p.lines { // in order of sku, because an UPDATE locks too
			writes = append(writes, tx.Queue(`
				UPDATE products
				SET stock = stock - $3, version = version + 1
				WHERE sku = $1
				AND version = $2`, l.SKU, find(items, l.SKU).Version, l.Quantity))
		}
		// A separate round trip, because its result decides whether to continue.
		if err := tx.Flush(ctx); err != nil {
			return Reply{}, err
		}
		for _, written := range writes {
			if written.RowsAffected() == 0 {
				return Reply{}, pgtx.ErrRetry
			}
		}
		return s.record(ctx, tx, p, items, order)
	})
}
