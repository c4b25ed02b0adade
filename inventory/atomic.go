package inventory

import "context"

// atomic: check and write in one statement. Right.
//
// The condition is part of the UPDATE. If another buyer holds the row, UPDATE
// waits for him and then checks the condition again, on the row as he left it:
// there is no moment between reading and writing. What it cannot do is run Go
// code between the two; where that is needed, see row.
func (s *Service) atomic(ctx context.Context, p *purchase) (Reply, error) {
	return s.transact(ctx, &p.intent, begin, func(ctx context.Context, t *tx) (Reply, error) {
		// One statement for each line, in order of sku: a single UPDATE over all
		// of them would lock in the order of its plan, and deadlock with its mirror image.
		for _, l := range p.lines {
			t.query(`
				UPDATE products
				SET stock = stock - $2, version = version + 1
				WHERE sku = $1
				AND stock >= $2
				RETURNING sku, price, currency, stock, version, now()`, l.SKU, l.Quantity)
		}
		items, err := t.guard(ctx)
		if err != nil {
			return Reply{}, err
		}
		if len(items) < len(p.lines) {
			return Reply{}, s.shortage(ctx, t, p)
		}
		order, err := p.price(items)
		if err != nil {
			return Reply{}, err
		}
		return s.record(t, p, order)
	})
}

// shortage takes back the lines that were there, and says which was not, and why.
func (s *Service) shortage(ctx context.Context, t *tx, p *purchase) error {
	t.items = nil
	t.exec("rollback")
	begin(t)
	t.query(`
		SELECT sku, price, currency, stock, version, now()
		FROM products
		WHERE sku = ANY($1)`, p.skus)
	if err := t.flush(ctx); err != nil {
		return err
	}
	if _, err := p.decide(t.items); err != nil {
		return err
	}
	return errConflict // somebody brought it back meanwhile: try again
}
