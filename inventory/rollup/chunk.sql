-- Adds up the next products of a day. The caller has locked the day's row in roll_ups.
-- $1 the day, $2 the last product that is done, $3 how many products
WITH part AS (
    SELECT sku, currency
    FROM products
    WHERE sku > $2
    ORDER BY sku
    LIMIT $3
), added AS (
    INSERT INTO daily_sales (day, sku, units, revenue, currency)
    SELECT $1::date, part.sku, -sum(moved.quantity), -sum(moved.quantity * line.unit_price), part.currency
    FROM part
    JOIN stock_movements AS moved USING (sku)
    JOIN order_lines AS line ON line.order_id = moved.order_id AND line.sku = moved.sku
    WHERE moved.created_at >= $1::date::timestamp AT TIME ZONE 'UTC'
      AND moved.created_at < ($1::date + 1)::timestamp AT TIME ZONE 'UTC'
    GROUP BY part.sku, part.currency
)
UPDATE roll_ups
SET upto = coalesce((SELECT max(sku) FROM part), upto),
    done_at = CASE WHEN (SELECT count(*) FROM part) < $3 THEN clock_timestamp() END
WHERE day = $1::date
RETURNING done_at IS NOT NULL
