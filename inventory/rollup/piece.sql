-- Adds the next movements of a day to its sums. The caller has locked the day's row in roll_ups.
-- $1 the day, $2 and $3 the time and the id of the last movement that is added, $4 how many movements
WITH part AS (
    SELECT created_at, id, sku, quantity, order_id
    FROM stock_movements
    WHERE (created_at, id) > ($2, $3)
      AND created_at < ($1::date + 1)::timestamp AT TIME ZONE 'UTC'
    ORDER BY created_at, id
    LIMIT $4
), added AS (
    INSERT INTO daily_sales AS sums (day, sku, units, revenue, currency)
    SELECT $1::date, part.sku, -sum(part.quantity), -sum(part.quantity::numeric * line.unit_price), line.currency
    FROM part
    CROSS JOIN LATERAL (
        SELECT order_lines.unit_price, products.currency
        FROM order_lines
        JOIN products USING (sku)
        WHERE order_lines.order_id = part.order_id AND order_lines.sku = part.sku
        LIMIT 1) AS line -- a limit keeps it one look-up for each movement: a join may read both tables whole
    GROUP BY part.sku, line.currency
    ON CONFLICT (day, sku) DO UPDATE
    SET units = sums.units + EXCLUDED.units, revenue = sums.revenue + EXCLUDED.revenue
), last AS (
    SELECT created_at, id FROM part ORDER BY created_at DESC, id DESC LIMIT 1
)
UPDATE roll_ups
SET upto_time = coalesce((SELECT created_at FROM last), upto_time),
    upto_id = coalesce((SELECT id FROM last), upto_id),
    done_at = CASE WHEN (SELECT count(*) FROM part) < $4 THEN clock_timestamp() END
WHERE day = $1::date
RETURNING done_at IS NOT NULL
