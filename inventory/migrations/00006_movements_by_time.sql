-- +goose NO TRANSACTION
-- +goose Up
-- The roll-up of a day reads its movements in this order, from where its last piece ended. Purchases go on while the
-- index is built. An interrupted migration leaves one that is not valid, so it is built anew.
DROP INDEX CONCURRENTLY IF EXISTS stock_movements_by_time;
CREATE INDEX CONCURRENTLY stock_movements_by_time ON stock_movements (created_at, id);
DROP INDEX CONCURRENTLY IF EXISTS stock_movements_time;

-- +goose Down
CREATE INDEX stock_movements_time ON stock_movements USING brin (created_at);
DROP INDEX stock_movements_by_time;
