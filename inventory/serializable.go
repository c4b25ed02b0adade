package inventory

import (
	"context"

	"shop/locking/idempotency/pgtx"
)

// serializable: let the database find out. Right, if every 40001 is run again.
//
// At SERIALIZABLE, PostgreSQL lets commit only what could have happened one after
// the other. The code is naive's, and a purchase that would have sold twice gets
// 40001 instead and starts over: the whole transaction, reading included. On a hot
// row that is most of them. On a small table the planner reads all of it, so that
// buyers of different products conflict as well.
func (s *Service) serializable(ctx context.Context, p *purchase) (Reply, error) {
	p.Begin = pgtx.BeginSerializable
	return s.run(ctx, p.Op, func(ctx context.Context, tx *pgtx.Tx) (Reply, error) {
		_, order, err := p.readAndDecide(ctx, tx, `
			SELECT sku, price, currency, stock, version, now()
			FROM products
			WHERE sku = ANY($1)`)
		if err != nil {
			return Reply{}, err
		}
		p.take(tx) // 40001 here, or at COMMIT
		return s.record(tx, p, order)
	})
}
