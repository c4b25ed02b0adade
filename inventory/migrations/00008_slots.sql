-- +goose Up
-- With the strategy slots, the stock of a product is in these rows, and what returns to it is in products.stock until a
-- buyer finds too little in them. Two buyers do not wait for each other as long as there is a row for each.
-- A replica of the version before, or with another strategy, does not see these units: see slots.go.
CREATE TABLE stock_slots (
    sku   text COLLATE "C" NOT NULL REFERENCES products,
    slot  integer NOT NULL,
    units bigint  NOT NULL CHECK (units >= 0), -- the last guard
    PRIMARY KEY (sku, slot)
) WITH (fillfactor = 50); -- room for the next versions of a row beside it

-- The stock of product p is p.stock + units_in_slots(p.sku), if one statement that has waited for no lock reads both.
CREATE FUNCTION units_in_slots(of text) RETURNS bigint LANGUAGE sql STABLE
    RETURN (SELECT COALESCE(sum(units), 0)::bigint FROM stock_slots WHERE sku = of);

-- +goose Down
UPDATE products SET stock = stock + units_in_slots(sku);
DROP FUNCTION units_in_slots;
DROP TABLE stock_slots;
