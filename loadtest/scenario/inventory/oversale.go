package inventory

import (
	"context"
	"fmt"

	"shop/loadtest"

	"github.com/jackc/pgx/v5"
)

// oversale is how the first product was sold beyond what was there.
type oversale struct {
	SKU   string
	Put   int64 // units that ever were there
	Sales []sale
}

// sale is one order of it, in the order in which the database got to know them.
type sale struct {
	Key     string
	Units   int64
	Sold    int64 // units up to and with this one
	Attempt loadtest.Attempt
}

// findOversale looks for the first product that was oversold, and tells how its
// sales to the keys in records went; nil if there was none.
func findOversale(ctx context.Context, conn *pgx.Conn, records []loadtest.Record) (*oversale, error) {
	rows, err := conn.Query(ctx, `
WITH sales AS (
	SELECT m.id, m.sku, o.idempotency_key, -m.quantity AS units,
	       sum(-m.quantity) OVER (PARTITION BY m.sku ORDER BY m.id) AS sold,
	       (SELECT sum(quantity) FROM stock_movements p WHERE p.sku = m.sku AND p.kind IN ('opening', 'restock')) AS put
	FROM stock_movements m
	JOIN orders o ON o.id = m.order_id AND o.status = 'confirmed'
	WHERE m.kind = 'sale'
), first AS (
	SELECT sku FROM sales WHERE sold > put ORDER BY id LIMIT 1
)
SELECT sku, put::bigint, idempotency_key, units::bigint, sold::bigint
FROM sales
WHERE sku = (SELECT sku FROM first)
ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("oversale: %w", err)
	}
	answered := attemptsThatBought(records)
	var o oversale
	var s sale
	_, err = pgx.ForEachRow(rows, []any{&o.SKU, &o.Put, &s.Key, &s.Units, &s.Sold}, func() error {
		var bought bool
		if s.Attempt, bought = answered[s.Key]; bought {
			o.Sales = append(o.Sales, s)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("oversale: %w", err)
	}
	if len(o.Sales) == 0 {
		return nil, nil
	}
	return &o, nil
}

// attemptsThatBought gives the first successful attempt of each key.
func attemptsThatBought(records []loadtest.Record) map[string]loadtest.Attempt {
	bought := map[string]loadtest.Attempt{}
	for _, r := range records {
		for _, a := range r.Attempts {
			if first, seen := bought[r.Key]; a.Outcome == loadtest.OK && (!seen || a.End < first.End) {
				bought[r.Key] = a
			}
		}
	}
	return bought
}

// crossing is the place of the first sale beyond what was there. There is one,
// unless it is not among the sales whose answer was recorded.
func (o *oversale) crossing() int {
	for i, s := range o.Sales {
		if s.Sold > o.Put {
			return i
		}
	}
	return len(o.Sales) - 1
}
