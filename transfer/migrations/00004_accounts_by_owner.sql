-- +goose NO TRANSACTION
-- +goose Up
-- For the list of a client's accounts. A transfer changes none of these columns, so it does not write to the index, and
-- transfers go on while the index of a large table is built, which waits for every transaction of the database. A small
-- table need not wait. An interrupted build leaves an index that is not valid: it is dropped first.
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('accounts_by_owner') AND NOT indisvalid) THEN
        DROP INDEX accounts_by_owner;
    END IF;
    IF pg_relation_size('accounts') < 10000000 THEN
        CREATE INDEX IF NOT EXISTS accounts_by_owner ON accounts (owner_id, id);
    END IF;
END $$;
-- +goose StatementEnd
CREATE INDEX CONCURRENTLY IF NOT EXISTS accounts_by_owner ON accounts (owner_id, id);

-- +goose Down
DROP INDEX accounts_by_owner;
