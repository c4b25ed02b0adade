-- One row for each unit of a product. Nothing that all buyers want is one row.
CREATE TABLE IF NOT EXISTS stock_units (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sku      text NOT NULL,
    order_id uuid -- NULL: not sold
);
CREATE INDEX IF NOT EXISTS stock_units_open ON stock_units (sku, id) WHERE order_id IS NULL;
