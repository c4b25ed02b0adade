package inventory

import "context"

// naive: read, check, write what was computed. Wrong.
//
// Two buyers read "1 left", both find that it suffices, both write 0: one piece
// is sold twice. The transaction does not help, READ COMMITTED lets both read
// before either writes. CHECK (stock >= 0) does not help: nobody writes less
// than 0. It passes every test with one buyer at a time.
func (s *Service) naive(ctx context.Context, p *purchase) (Reply, error) {
	return s.transact(ctx, &p.intent, begin, func(ctx context.Context, t *tx) (Reply, error) {
		return s.readThenWrite(ctx, t, p)
	})
}

// readThenWrite is the unguarded half of naive and of redis-only.
func (s *Service) readThenWrite(ctx context.Context, t *tx, p *purchase) (Reply, error) {
	t.query(`
		SELECT sku, price, currency, stock, version, now()
		FROM products
		WHERE sku = ANY($1)`, p.skus) // no lock: from here on, it is about the past
	items, err := t.guard(ctx)
	if err != nil {
		return Reply{}, err
	}
	order, err := p.decide(items)
	if err != nil {
		return Reply{}, err
	}
	for _, l := range p.lines {
		// The mistake: a value that was computed outside, and puts back what others took meanwhile.
		t.exec(`
			UPDATE products
			SET stock = $2, version = version + 1
			WHERE sku = $1`, l.SKU, find(items, l.SKU).stock-l.Quantity)
	}
	return s.record(t, p, order)
}
