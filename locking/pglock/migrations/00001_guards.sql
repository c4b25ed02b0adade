-- +goose Up
-- IF NOT EXISTS is no lock: two migrations at once would both find nothing there.
SELECT pg_advisory_xact_lock(123589503181675);
-- One row for each resource that was ever guarded. It stays for ever: a row that
-- is deleted forgets its fence, and the holders that it refused would pass.
CREATE TABLE IF NOT EXISTS guards (
    resource text COLLATE "C" PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 512),
    fence    bigint NOT NULL CHECK (fence > 0)
) WITH (fillfactor = 50);
