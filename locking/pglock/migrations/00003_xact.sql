-- +goose Up
SELECT pg_advisory_xact_lock(123589503181675);
-- One row for each thing that a transaction may lock with LockRow.
CREATE TABLE IF NOT EXISTS lock_rows (
    key text COLLATE "C" PRIMARY KEY CHECK (octet_length(key) BETWEEN 1 AND 512)
);

-- xact_lock_within is pg_advisory_xact_lock with a time limit in milliseconds, above 0. It returns
-- false after the limit. It leaves lock_timeout as it was: the rollback of the block restores it after a
-- time-out, the second set_config otherwise. It does not catch deadlock_detected (40P01): that
-- is an error of the caller's transaction, and not a time-out.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION xact_lock_within(key bigint, milliseconds integer) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    before text := current_setting('lock_timeout');
BEGIN
    PERFORM set_config('lock_timeout', milliseconds::text, true);
    PERFORM pg_advisory_xact_lock(key);
    PERFORM set_config('lock_timeout', before, true);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;
-- +goose StatementEnd

-- session_lock_within is the same for pg_advisory_lock: pg_advisory_unlock, or the end of the
-- session, releases it, and a rollback does not.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION session_lock_within(key bigint, milliseconds integer) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    before text := current_setting('lock_timeout');
BEGIN
    PERFORM set_config('lock_timeout', milliseconds::text, true);
    PERFORM pg_advisory_lock(key);
    PERFORM set_config('lock_timeout', before, true);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;
-- +goose StatementEnd
