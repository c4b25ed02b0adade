-- Invariants of the purchase tables. Each query returns the ids that violate an invariant, and
-- no row if it holds; any query can be copied into psql. Each is one statement, so it reads one
-- snapshot and may run under traffic. The proof, `shop audit` and /v1/audit run this file.
--
-- The joins are outer joins from the side that must be complete: an inner join would hide a
-- product that never sold and lost its stock, or an order that has no lines.
--
-- A key names one request for at least 23 hours. After that its answer may be purged, and
-- the key used again. (Answers are kept for 24 hours from the start of their transaction;
-- the effect is dated later, by at most the time of a request.)
--
-- invariant: S1 stock-balance: the stock is what was put there minus what was bought, by order lines and by movements
-- invariant: I-WHOLE whole-orders: an order has all its lines or does not exist
-- invariant: I-MAX purchase-limits: no client has more units of a product in confirmed orders than its limit allowed

-- name: S1 lines
-- finds: product whose stock is not what was put there minus what was bought
SELECT p.sku
FROM products_with_slots p
LEFT JOIN (SELECT sku, sum(quantity) AS units
           FROM stock_movements
           WHERE kind IN ('opening', 'restock')
           GROUP BY sku) put ON put.sku = p.sku
LEFT JOIN (SELECT l.sku, sum(l.quantity) AS units
           FROM order_lines l
           JOIN orders o ON o.id = l.order_id
           WHERE o.status = 'confirmed'
           GROUP BY l.sku) bought ON bought.sku = p.sku
WHERE p.stock <> COALESCE(put.units, 0) - COALESCE(bought.units, 0);

-- name: S1 movements
-- finds: product whose stock is not the sum of its movements
SELECT p.sku
FROM products_with_slots p
LEFT JOIN (SELECT sku, sum(quantity) AS units
           FROM stock_movements
           GROUP BY sku) moved ON moved.sku = p.sku
WHERE p.stock <> COALESCE(moved.units, 0);

-- name: S1 negative
-- finds: product with less than nothing
SELECT sku FROM products WHERE stock < 0
UNION
SELECT sku FROM stock_slots WHERE units < 0;

-- name: S1 pairs
-- finds: order whose line did not move the stock it should have, or that moved stock without a line
-- Sums per product can agree by accident; a line and its movements cannot.
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
WHERE moved.units IS DISTINCT FROM want.units;

-- name: I-WHOLE
-- finds: order without lines, or with a total that is not that of its lines
SELECT o.id::text
FROM orders o
LEFT JOIN order_lines l ON l.order_id = o.id
GROUP BY o.id
HAVING o.total <> COALESCE(sum(l.quantity * l.unit_price), -1);

-- name: I-MAX
-- finds: client whose units of a product with a limit are not those counted, or too many
SELECT sku || ' ' || client_id
FROM (SELECT l.sku, o.client_id, sum(l.quantity) AS units
      FROM order_lines l
      JOIN orders o ON o.id = l.order_id
      JOIN products p ON p.sku = l.sku
      WHERE o.status = 'confirmed' AND p.client_max IS NOT NULL
      GROUP BY l.sku, o.client_id) bought
FULL JOIN purchased USING (sku, client_id)
WHERE COALESCE(purchased.units, 0) <> COALESCE(bought.units, 0)
   OR purchased.units > purchased.client_max;

-- name: I-ONCE orders
-- finds: key that made another order while its answer was kept
SELECT DISTINCT o.client_id || ' ' || o.idempotency_key
FROM (SELECT client_id, idempotency_key, created_at,
             lag(created_at) OVER (PARTITION BY client_id, idempotency_key ORDER BY created_at) AS earlier
      FROM orders) o
LEFT JOIN idempotency_keys k ON k.client_id = o.client_id AND k.key = o.idempotency_key
WHERE o.created_at - o.earlier < interval '23 hours'
   OR k.created_at <= o.earlier;

-- name: I-ONCE answers
-- finds: key whose stored answer is a refusal although it made an order, or that has none
SELECT o.client_id || ' ' || o.idempotency_key
FROM orders o
LEFT JOIN idempotency_keys k ON k.client_id = o.client_id AND k.key = o.idempotency_key
WHERE k.status NOT BETWEEN 200 AND 299 AND k.created_at - o.created_at < interval '23 hours'
   OR k.status IS NULL AND o.created_at > now() - interval '23 hours';

-- number: oversold
-- finds: units in confirmed orders beyond all that was opened or restocked
SELECT COALESCE(sum(GREATEST(bought.units - COALESCE(put.units, 0), 0)), 0)::bigint
FROM (SELECT l.sku, sum(l.quantity) AS units
      FROM order_lines l
      JOIN orders o ON o.id = l.order_id
      WHERE o.status = 'confirmed'
      GROUP BY l.sku) bought
LEFT JOIN (SELECT sku, sum(quantity) AS units
           FROM stock_movements
           WHERE kind IN ('opening', 'restock')
           GROUP BY sku) put ON put.sku = bought.sku;
