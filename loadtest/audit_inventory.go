package loadtest

// InventoryChecks need only the tables. The joins are outer joins from the side
// that must be complete: an inner join would hide a product that never sold and
// lost its stock, or an order that has no lines.
var InventoryChecks = []Check{
	{
		Name: "S1 lines", Invariant: "S1",
		Means: "product whose stock is not what was put there minus what was bought",
		SQL: `
SELECT p.sku
FROM products p
LEFT JOIN (` + putThere + `) put ON put.sku = p.sku
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
		SQL: `
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
		SQL:   `SELECT sku FROM products WHERE stock < 0`,
	},
	{
		// Sums per product can agree by accident; a line and its movements cannot.
		Name: "S1 pairs", Invariant: "S1",
		Means: "order whose line did not move the stock it should have, or that moved stock without a line",
		SQL: `
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
		SQL: `
SELECT o.id::text
FROM orders o
LEFT JOIN order_lines l ON l.order_id = o.id
GROUP BY o.id
HAVING o.total <> COALESCE(sum(l.quantity * l.unit_price), -1)`,
	},
	{
		Name: "I-ONCE orders", Invariant: "I-ONCE",
		Means: "key that made another order while its answer was kept",
		SQL: `
SELECT DISTINCT o.client_id || ' ' || o.idempotency_key
FROM (SELECT client_id, idempotency_key, created_at,
             lag(created_at) OVER (PARTITION BY client_id, idempotency_key ORDER BY created_at) AS earlier
      FROM orders) o
LEFT JOIN order_keys k ON k.client_id = o.client_id AND k.key = o.idempotency_key
WHERE o.created_at - o.earlier < ` + keysKept + `
   OR k.created_at <= o.earlier`,
	},
	{
		Name: "I-ONCE answer", Invariant: "I-ONCE",
		Means: "key whose stored answer is a refusal although it made an order",
		SQL: `
SELECT k.client_id || ' ' || k.key
FROM order_keys k
JOIN orders o ON o.client_id = k.client_id AND o.idempotency_key = k.key
WHERE k.status NOT BETWEEN 200 AND 299 AND k.created_at - o.created_at < ` + keysKept,
	},
}

// putThere is what the service says was put on the shelves.
const putThere = `
SELECT sku, sum(quantity) AS units
FROM stock_movements
WHERE kind IN ('opening', 'restock')
GROUP BY sku`

// oversoldSQL is the number that a shopkeeper feels: units promised to buyers
// beyond all that was put on the shelf, by the service's word or by the plan.
func oversoldSQL(put string) string {
	return `
SELECT COALESCE(sum(GREATEST(bought.units - COALESCE(put.units, 0), 0)), 0)::bigint
FROM (SELECT l.sku, sum(l.quantity) AS units
      FROM order_lines l
      JOIN orders o ON o.id = l.order_id
      WHERE o.status = 'confirmed'
      GROUP BY l.sku) bought
LEFT JOIN (` + put + `) put ON put.sku = bought.sku`
}
