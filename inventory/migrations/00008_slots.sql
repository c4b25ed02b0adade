-- +goose Up
-- With the strategy slots, the stock of a product is in these rows, and what returns to it is in products.stock until a
-- buyer finds too little in them. Two buyers do not wait for each other as long as there is a row for each.
-- A replica of the version before, or with another strategy, does not see these units: see slots.go.
SET LOCAL lock_timeout = '3s'; -- purchases queue behind it; a migration may be repeated
CREATE TABLE stock_slots (
    sku   text COLLATE "C" NOT NULL REFERENCES products,
    slot  integer NOT NULL,
    units bigint  NOT NULL CHECK (units >= 0), -- the last guard
    PRIMARY KEY (sku, slot)
) WITH (fillfactor = 50); -- room for the next version of a row beside it

-- Products with all their units. A statement that waits for the row of a product reads its slots as they were before:
-- read this view in the next one.
CREATE VIEW products_with_slots AS
SELECT sku, name, price, currency,
       LEAST(stock + COALESCE((SELECT sum(units) FROM stock_slots s WHERE s.sku = p.sku), 0), 9223372036854775807)::bigint AS stock,
       version, client_max
FROM products p;

-- +goose Down
SET LOCAL lock_timeout = '3s';
LOCK TABLE products_with_slots; -- and the tables under it, in the order in which its readers lock them
UPDATE products p SET stock = all_of.stock FROM products_with_slots all_of WHERE all_of.sku = p.sku;
DROP VIEW products_with_slots;
DROP TABLE stock_slots;
