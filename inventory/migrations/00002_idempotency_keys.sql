-- +goose Up
-- The keys move to the table that all users of package pgtx share. It exists:
-- Migrate makes it first. A replica of the version before must be stopped: its
-- table is gone.
INSERT INTO idempotency_keys (client_id, key, fingerprint, status, body, created_at)
SELECT client_id, key, fingerprint, status, body, created_at
FROM order_keys
ON CONFLICT DO NOTHING;
DROP TABLE order_keys;
