package inventory

import "context"

// row: SELECT … FOR UPDATE, then write. Right, and enough.
//
// The lock is the row itself, so that nobody can forget it, lose it, or hold it
// without the database knowing: it lives and dies with the transaction. Whoever
// comes second waits inside the SELECT and then reads what the first committed.
func (s *Service) row(ctx context.Context, p *purchase) (Reply, error) {
	return s.transact(ctx, &p.intent, begin, func(ctx context.Context, t *tx) (Reply, error) {
		return s.readLocked(ctx, t, p)
	})
}

// readLocked is the guarded half of row and of redis+row.
func (s *Service) readLocked(ctx context.Context, t *tx, p *purchase) (Reply, error) {
	// ORDER BY sorts before it locks, by a key that never changes: all buyers
	// lock in the same order, and none waits for another in a circle. FOR UPDATE
	// returns the newest committed version of each row, also after a wait; FOR
	// NO KEY UPDATE would do as well, and let foreign keys to products through.
	t.query(`
		SELECT sku, price, currency, stock, version, now()
		FROM products
		WHERE sku = ANY($1)
		ORDER BY sku
		FOR UPDATE`, p.skus)
	items, err := t.guard(ctx)
	if err != nil {
		return Reply{}, err
	}
	order, err := p.decide(items)
	if err != nil {
		return Reply{}, err
	}
	p.take(t)
	return s.record(t, p, order)
}
