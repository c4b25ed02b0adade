package inventory

import "context"

// serializable: let the database find out. Right, if every 40001 is run again.
//
// At SERIALIZABLE, PostgreSQL lets commit only what could have happened one after
// the other. The code is naive's, and whoever would have sold twice gets 40001
// instead and starts over: the whole transaction, reading included. On a hot row that is
// most of them. On a small table the planner reads all of it, so that buyers of
// different products conflict as well.
func (s *Service) serializable(ctx context.Context, p *purchase) (Reply, error) {
	open := func(t *tx) { t.exec("begin isolation level serializable") }
	return s.transact(ctx, &p.intent, open, func(ctx context.Context, t *tx) (Reply, error) {
		t.query(`
			SELECT sku, price, currency, stock, version, now()
			FROM products
			WHERE sku = ANY($1)`, p.skus)
		items, err := t.guard(ctx)
		if err != nil {
			return Reply{}, err
		}
		order, err := p.decide(items)
		if err != nil {
			return Reply{}, err
		}
		p.take(t) // 40001 here, or at COMMIT
		return s.record(t, p, order)
	})
}
