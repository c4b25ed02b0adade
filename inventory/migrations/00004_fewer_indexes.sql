-- +goose Up
-- No request reads by these, and the audits read whole tables. Each costs a purchase one write.
DROP INDEX IF EXISTS order_lines_sku, stock_movements_sku;

-- +goose Down
CREATE INDEX order_lines_sku ON order_lines (sku);
CREATE INDEX stock_movements_sku ON stock_movements (sku);
