package inventory

import (
	"context"

	"github.com/jackc/pgx/v5"

	"shop/locking/invariant"
)

// Invariants need only the tables. The joins are outer joins from the side
// that must be complete: an inner join would hide a product that never sold and
// lost its stock, or an order that has no lines.
var Invariants = []invariant.Check{
	{
		Name: "S1 lines", Invariant: "S1",
		Means: "product whose stock is not what was put there minus what was bought",
		Query: `
SELECT p.sku
FROM products p
LEFT JOIN (` + PutThere + `) put ON put.sku = p.sku
LEFT JOIN (SELECT l.sku, sum(l.quantity) AS units
           FROM order_lines l
           JOIN orders o ON o.id = l.order_id
           WHERE o.status = 'confirmed'
           GROUP BY l.sku) bought ON bought.sku = p.sku
WHERE p.stock <> COALESCE(put.units, 0) - COALESCE(bought.units, 0)`,
	},
	{
		Name: "S1 movements", Invariant: "S1",
		Means: "product whose stock is not the sum of its movements",
		Query: `
SELECT p.sku
FROM products p
LEFT JOIN (SELECT sku, sum(quantity) AS units
           FROM stock_movements
           GROUP BY sku) moved ON moved.sku = p.sku
WHERE p.stock <> COALESCE(moved.units, 0)`,
	},
	{
		Name: "S1 negative", Invariant: "S1",
		Means: "product with less than nothing",
		Query: `SELECT sku FROM products WHERE stock < 0`,
	},
	{
		// Sums per product can agree by accident; a line and its movements cannot.
		Name: "S1 pairs", Invariant: "S1",
		Means: "order whose line did not move the stock it should have, or that moved stock without a line",
		Query: `
SELECT COALESCE(want.order_id, moved.order_id)::text
FROM (SELECT l.order_id, l.sku,
             CASE o.status WHEN 'confirmed' THEN -l.quantity ELSE 0 END AS units
      FROM order_lines l
      JOIN orders o ON o.id = l.order_id) want
FULL JOIN (SELECT order_id, sku, sum(quantity) AS units
           FROM stock_movements
           WHERE order_id IS NOT NULL
           GROUP BY order_id, sku) moved
       ON moved.order_id = want.order_id AND moved.sku = want.sku
WHERE moved.units IS DISTINCT FROM want.units`,
	},
	{
		Name: "I-WHOLE", Invariant: "I-WHOLE",
		Means: "order without lines, or with a total that is not that of its lines",
		Query: `
SELECT o.id::text
FROM orders o
LEFT JOIN order_lines l ON l.order_id = o.id
GROUP BY o.id
HAVING o.total <> COALESCE(sum(l.quantity * l.unit_price), -1)`,
	},
	{
		Name: "I-ONCE orders", Invariant: "I-ONCE",
		Means: "key that made another order while its answer was kept",
		Query: `
SELECT DISTINCT o.client_id || ' ' || o.idempotency_key
FROM (SELECT client_id, idempotency_key, created_at,
             lag(created_at) OVER (PARTITION BY client_id, idempotency_key ORDER BY created_at) AS earlier
      FROM orders) o
LEFT JOIN idempotency_keys k ON k.client_id = o.client_id AND k.key = o.idempotency_key
WHERE o.created_at - o.earlier < ` + keysKept + `
   OR k.created_at <= o.earlier`,
	},
	{
		Name: "I-ONCE answer", Invariant: "I-ONCE",
		Means: "key whose stored answer is a refusal although it made an order",
		Query: `
SELECT k.client_id || ' ' || k.key
FROM idempotency_keys k
JOIN orders o ON o.client_id = k.client_id AND o.idempotency_key = k.key
WHERE k.status NOT BETWEEN 200 AND 299 AND k.created_at - o.created_at < ` + keysKept,
	},
}

// keysKept is how long a key names one request, at the least. After that its answer
// may be purged, and the key used again. Answers are kept for 24 hours from the
// beginning of their transaction; the effect is dated later, by at most a request's time.
const keysKept = `interval '23 hours'`

// PutThere is what the service says was put on the shelves.
const PutThere = `
SELECT sku, sum(quantity) AS units
FROM stock_movements
WHERE kind IN ('opening', 'restock')
GROUP BY sku`

// OversoldSQL is the number that a shopkeeper feels: units promised to buyers
// beyond all that was put on the shelf, by the service's word or by the plan.
func OversoldSQL(put string) string {
	return `
SELECT COALESCE(sum(GREATEST(bought.units - COALESCE(put.units, 0), 0)), 0)::bigint
FROM (SELECT l.sku, sum(l.quantity) AS units
      FROM order_lines l
      JOIN orders o ON o.id = l.order_id
      WHERE o.status = 'confirmed'
      GROUP BY l.sku) bought
LEFT JOIN (` + put + `) put ON put.sku = bought.sku`
}

// Audit counts what breaks the invariants that can be seen in the tables alone,
// without knowing what clients were told. Every number is 0 where nothing is wrong.
func Audit(ctx context.Context, db invariant.Querier[pgx.Rows]) (map[string]int64, error) {
	findings, err := invariant.Run(ctx, Invariants, invariant.SQL(db))
	if err != nil {
		return nil, err
	}
	counts := findings.Counts()
	counts["oversold"], err = invariant.Number(ctx, db, OversoldSQL(PutThere))
	return counts, err
}
