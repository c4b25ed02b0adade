package inventory

import "context"

// optimistic: read without a lock, write only if nobody wrote meanwhile. Right.
//
// Every writer of a product raises its version, a cancel too. If the
// version is no longer the one that was read, the UPDATE finds no row and the
// whole purchase runs again: nobody waits, but on a hot row most attempts are
// thrown away, so that the number of attempts is bounded. Good where conflicts are rare.
func (s *Service) optimistic(ctx context.Context, p *purchase) (Reply, error) {
	return s.transact(ctx, &p.intent, begin, func(ctx context.Context, t *tx) (Reply, error) {
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
		for _, l := range p.lines { // in order of sku: an UPDATE locks, too
			t.exec(`
				UPDATE products
				SET stock = stock - $3, version = version + 1
				WHERE sku = $1
				AND version = $2`, l.SKU, find(items, l.SKU).version, l.Quantity)
		}
		// A round trip of its own: whether to go on depends on its answer.
		if err := t.flush(ctx); err != nil {
			return Reply{}, err
		}
		if t.affected < len(p.lines) {
			return Reply{}, errConflict
		}
		return s.record(t, p, order)
	})
}
