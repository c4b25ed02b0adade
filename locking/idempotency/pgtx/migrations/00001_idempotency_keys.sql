-- +goose Up
-- IF NOT EXISTS takes no lock: two concurrent migrations would both find no table.
SELECT pg_advisory_xact_lock(1885828216);
-- One table for all packages of this schema: a client's key is unique, whatever
-- operation it was used for.
CREATE TABLE IF NOT EXISTS idempotency_keys (
    client_id   uuid        NOT NULL,
    key         text        NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 255),
    fingerprint bytea       NOT NULL CHECK (octet_length(fingerprint) = 32),
    status      integer     NOT NULL,
    body        bytea       NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (client_id, key)
);
CREATE INDEX IF NOT EXISTS idempotency_keys_created_at ON idempotency_keys (created_at); -- for Purge
