-- +goose Up
-- Move the keys to the table that all users of package pgtx share, which Migrate has made.
-- If a client sent one key to a transfer and to an order, two rows have the same primary key.
-- The row of the order stays, and the row of the transfer is kept in transfer_keys_collided:
-- no record is lost, and a repetition of that transfer is refused as a reused key, and moves
-- no money again.
LOCK TABLE transfer_keys; -- a server of the old version may be writing to it
WITH moved AS (
    INSERT INTO idempotency_keys (client_id, key, fingerprint, status, body, created_at)
    SELECT client_id, key, fingerprint, status, body, created_at
    FROM transfer_keys
    ON CONFLICT (client_id, key) DO NOTHING
    RETURNING client_id, key
)
DELETE FROM transfer_keys USING moved
WHERE transfer_keys.client_id = moved.client_id AND transfer_keys.key = moved.key;

-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM transfer_keys) THEN
        ALTER TABLE transfer_keys RENAME TO transfer_keys_collided;
    ELSE
        DROP TABLE transfer_keys;
    END IF;
END $$;
-- +goose StatementEnd
