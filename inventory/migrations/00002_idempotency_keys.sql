-- +goose Up
-- The keys move to the table that all users of package pgtx share; Migrate has made it.
-- Where a transfer has the same key of the same client, its row stays: a repetition of
-- the order is refused as a reused key, and buys nothing again. A replica of the version
-- before must be stopped: its table is gone.
LOCK TABLE order_keys;
INSERT INTO idempotency_keys (client_id, key, fingerprint, status, body, created_at)
SELECT client_id, key, fingerprint, status, body, created_at
FROM order_keys
ON CONFLICT DO NOTHING;
DROP TABLE order_keys;
