-- +goose Up
-- IF NOT EXISTS takes no lock: two concurrent migrations would both find no table.
SELECT pg_advisory_xact_lock(123589503181675);
-- One row for each resource that was ever guarded. Never delete a row: its fence would
-- be lost, and the holders that it refuses would pass.
CREATE TABLE IF NOT EXISTS guards (
    resource text COLLATE "C" PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 512),
    fence    bigint NOT NULL CHECK (fence > 0)
) WITH (fillfactor = 50);
