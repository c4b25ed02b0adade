package inventory

import "fmt"

// take queues the stock's write, relative to what is there: whatever was read
// before, it cannot put back what somebody else took, and CHECK (stock >= 0)
// refuses it if it would sell what is not there. The last guard.
func (p *purchase) take(t *tx) {
	for _, l := range p.lines {
		t.exec(`
			UPDATE products
			SET stock = stock - $2, version = version + 1
			WHERE sku = $1`, l.SKU, l.Quantity)
	}
}

// record queues everything that a purchase leaves besides the stock: the key
// with the reply, the order, its lines, and the movements. The key goes first:
// it is the one that may have to wait, and the one that may say no.
func (s *Service) record(t *tx, p *purchase, order Order) (Reply, error) {
	reply, err := s.encode(order, nil)
	if err != nil {
		return Reply{}, fmt.Errorf("inventory: encode order: %w", err)
	}
	t.storeReply(&p.intent, reply)
	t.exec(`
		INSERT INTO orders (id, client_id, idempotency_key, status, total, currency)
		VALUES ($1, $2, $3, 'confirmed', $4, $5)`,
		order.ID, order.Client, p.req.Key, order.Total, order.Currency)
	quantities, prices := make([]int64, len(order.Lines)), make([]int64, len(order.Lines))
	for i, l := range order.Lines {
		quantities[i], prices[i] = l.Quantity, l.UnitPrice
	}
	t.exec(`
		INSERT INTO order_lines (order_id, sku, quantity, unit_price)
		SELECT $1, l.* FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS l`,
		order.ID, p.skus, quantities, prices)
	t.exec(`
		INSERT INTO stock_movements (sku, kind, quantity, order_id)
		SELECT l.sku, 'sale', -l.quantity, $1
		FROM unnest($2::text[], $3::bigint[]) AS l(sku, quantity)`,
		order.ID, p.skus, quantities)
	return reply, nil
}
