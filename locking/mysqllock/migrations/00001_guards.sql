-- +goose Up
-- One row for each resource that is guarded, made by MakeGuards. Never delete a row: its fence
-- would be lost, and the holders that it refuses would pass. The name is bytes, because the
-- default collation compares 'a' and 'A' as equal, and 'a ' as well on some servers.
-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS guards (
    resource VARBINARY(512) NOT NULL PRIMARY KEY,
    fence    BIGINT NOT NULL DEFAULT 0,
    passed   BIGINT NOT NULL DEFAULT 0 -- how many guards have passed: an update that changes nothing affects no row
) ENGINE = InnoDB;
-- +goose StatementEnd
