-- +goose NO TRANSACTION
-- +goose Up
-- For the list of a client's accounts. Transfers go on while the index is built, and do not write to it: no transfer
-- changes these columns. An interrupted migration leaves an index that is not valid, so it is built anew.
DROP INDEX CONCURRENTLY IF EXISTS accounts_by_owner;
CREATE INDEX CONCURRENTLY accounts_by_owner ON accounts (owner_id, id);

-- +goose Down
DROP INDEX accounts_by_owner;
