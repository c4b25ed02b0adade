package inventory_test

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// broken checks the invariants by SQL, and lists what does not hold.
func (s *shop) broken() []string {
	s.t.Helper()
	// LEFT JOINs, so that a product without movements, or an order without lines, is seen.
	rows, _ := s.pool.Query(context.Background(), `
		SELECT 'stock of ' || sku || ' is ' || stock || ', movements say ' || moved
		FROM (SELECT p.sku, p.stock, COALESCE(sum(m.quantity), 0) AS moved
		      FROM products p LEFT JOIN stock_movements m USING (sku) GROUP BY p.sku) s
		WHERE stock < 0 OR stock <> moved
		UNION ALL
		SELECT 'order ' || o.id || ' line ' || COALESCE(l.sku, 'missing') || ': sold ' || COALESCE(l.quantity, 0)
		       || ', moved ' || COALESCE(sum(-m.quantity) FILTER (WHERE kind = 'sale'), 0)
		FROM orders o LEFT JOIN order_lines l ON l.order_id = o.id
		LEFT JOIN stock_movements m ON m.order_id = o.id AND m.sku = l.sku
		GROUP BY o.id, l.sku, l.quantity
		HAVING l.quantity IS NULL
		    OR l.quantity <> COALESCE(sum(-m.quantity) FILTER (WHERE kind = 'sale'), 0)
		    OR COALESCE(sum(m.quantity) FILTER (WHERE kind = 'cancel'), 0)
		       <> CASE o.status WHEN 'cancelled' THEN l.quantity ELSE 0 END
		UNION ALL
		SELECT 'key ' || o.idempotency_key || ' has ' || count(*) || ' orders'
		FROM orders o GROUP BY o.client_id, o.idempotency_key HAVING count(*) > 1
		UNION ALL
		SELECT 'order ' || o.id || ' has no key'
		FROM orders o LEFT JOIN idempotency_keys k ON k.client_id = o.client_id AND k.key = o.idempotency_key
		WHERE k.key IS NULL`)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}

// mustHold fails the test if an invariant is broken.
func (s *shop) mustHold() {
	s.t.Helper()
	for _, b := range s.broken() {
		s.t.Error(b)
	}
}
