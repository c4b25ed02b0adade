-- +goose Up
-- The keys move to the table that all users of package pgtx share; Migrate has made it.
-- A client that sent one key to an order and to a transfer has two rows for one place.
-- The row that is there stays, and the other one is kept in order_keys_collided: no record
-- is lost, and a repetition of that order is refused as a reused key, so that it buys
-- nothing again. A replica of the version before must be stopped: its table is gone.
LOCK TABLE order_keys;
WITH moved AS (
    INSERT INTO idempotency_keys (client_id, key, fingerprint, status, body, created_at)
    SELECT client_id, key, fingerprint, status, body, created_at
    FROM order_keys
    ON CONFLICT (client_id, key) DO NOTHING
    RETURNING client_id, key
)
DELETE FROM order_keys USING moved
WHERE order_keys.client_id = moved.client_id AND order_keys.key = moved.key;

-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM order_keys) THEN
        ALTER TABLE order_keys RENAME TO order_keys_collided;
    ELSE
        DROP TABLE order_keys;
    END IF;
END $$;
-- +goose StatementEnd
