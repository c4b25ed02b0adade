-- A shop whose orders are all of the day before yesterday: {{rows}} orders of 100 products.
-- Without the triggers of foreign keys, which would take most of the time.
SET session_replication_role = replica;
INSERT INTO products (sku, name, price, currency, stock)
SELECT 'p' || lpad(i::text, 3, '0'), 'product', 100, 'EUR', 1000000 FROM generate_series(1, 100) AS i;
INSERT INTO stock_movements (sku, kind, quantity, created_at)
SELECT sku, 'opening', stock + {{rows}} / 100, now() - interval '30 days' FROM products ORDER BY sku;
CREATE UNLOGGED TABLE sold AS
SELECT gen_random_uuid() AS id, gen_random_uuid() AS client, 'p' || lpad((i % 100 + 1)::text, 3, '0') AS sku,
       (((now() AT TIME ZONE 'UTC')::date - 2)::timestamp AT TIME ZONE 'UTC') + i * (interval '1 day' / {{rows}}) AS at
FROM generate_series(0, {{rows}} - 1) AS i;
INSERT INTO orders (id, client_id, idempotency_key, status, total, currency, created_at)
SELECT id, client, id::text, 'confirmed', 100, 'EUR', at FROM sold;
INSERT INTO order_lines (order_id, sku, quantity, unit_price) SELECT id, sku, 1, 100 FROM sold;
INSERT INTO stock_movements (sku, kind, quantity, order_id, created_at) SELECT sku, 'sale', -1, id, at FROM sold;
INSERT INTO idempotency_keys (client_id, key, fingerprint, status, body, created_at)
SELECT client, id::text, sha256(''), 201, '{}', at FROM sold;
DROP TABLE sold;
INSERT INTO clients (id, name, key_sha256)
SELECT gen_random_uuid(), 'client ' || i, sha256(i::text::bytea) FROM generate_series(1, {{rows}}) AS i;
