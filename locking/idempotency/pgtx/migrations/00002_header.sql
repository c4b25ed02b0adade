-- +goose Up
SELECT pg_advisory_xact_lock(1885828216);
SET LOCAL lock_timeout = '3s'; -- others queue behind it; a migration may be repeated
-- +goose StatementBegin
-- ADD COLUMN IF NOT EXISTS would wait for all who use the table, also if the column exists.
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'idempotency_keys'::regclass AND attname = 'header') THEN
        ALTER TABLE idempotency_keys ADD COLUMN header jsonb; -- of strings; NULL: none
    END IF;
END $$;
-- +goose StatementEnd
