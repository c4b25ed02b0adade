-- +goose NO TRANSACTION
-- +goose Up
-- The roll-up of a day reads its movements in this order, from where its last piece ended. Purchases go on while the
-- index of a large table is built, which waits for every transaction of the database. A small table need not wait.
-- An interrupted build leaves an index that is not valid: it is dropped first.
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('stock_movements_by_time') AND NOT indisvalid) THEN
        DROP INDEX stock_movements_by_time;
    END IF;
    IF pg_relation_size('stock_movements') < 10000000 THEN
        CREATE INDEX IF NOT EXISTS stock_movements_by_time ON stock_movements (created_at, id);
    END IF;
END $$;
-- +goose StatementEnd
CREATE INDEX CONCURRENTLY IF NOT EXISTS stock_movements_by_time ON stock_movements (created_at, id);
DROP INDEX IF EXISTS stock_movements_time;

-- +goose Down
CREATE INDEX stock_movements_time ON stock_movements USING brin (created_at);
DROP INDEX stock_movements_by_time;
