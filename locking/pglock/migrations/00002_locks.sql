-- +goose Up
SELECT pg_advisory_xact_lock(123589503181675);
-- One row for each key that was ever locked. Fences come from a sequence, so a row that is
-- not held may be deleted without making a fence start again. The Store checks the keys: a CHECK would be evaluated at
-- each update.
CREATE TABLE IF NOT EXISTS locks (
    key     text COLLATE "C" PRIMARY KEY,
    owner   text        NOT NULL DEFAULT '',          -- random for each grant; '': free
    fence   bigint      NOT NULL DEFAULT 0,           -- of the last grant
    expires timestamptz NOT NULL DEFAULT '-infinity',
    awaited boolean     NOT NULL DEFAULT false        -- a waiter wants a notification of the release
) WITH (fillfactor = 50);
CREATE SEQUENCE IF NOT EXISTS locks_fence;

-- All functions compare with clock_timestamp(): now() is the start of the transaction, which
-- may have waited for a row since. They lock rows in the order of their keys, so that
-- no two calls wait for each other.

-- locks_acquire takes all keys for an owner, or none. It returns the fence, or 0 if another
-- owner holds a key. Called twice with one owner it makes one grant, with one fence.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION locks_acquire(keys text[], who text, ttl interval, waits boolean) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    granted bigint;
BEGIN
    -- One free key, for a waiter or in a caller's transaction, is one update (for others: store.go). If a transaction that has just ended changed the row, PostgreSQL
    -- computes the update again from the new row, with a new fence.
    IF cardinality(keys) = 1 THEN
        UPDATE locks
        SET owner = who, fence = nextval('locks_fence'), expires = clock_timestamp() + ttl, awaited = false
        WHERE key = keys[1] AND expires <= clock_timestamp()
        RETURNING fence INTO granted;
        IF FOUND THEN
            RETURN granted;
        END IF;
    END IF;
    -- A refusal writes nothing, except for the first waiter behind a holder, which has to set awaited.
    IF EXISTS (SELECT FROM locks
               WHERE key = ANY (keys) AND owner <> who AND expires > clock_timestamp() AND (awaited OR NOT waits)) THEN
        RETURN 0;
    END IF;
    -- Locks the rows, and adds those that are missing. DO NOTHING would not lock a row.
    INSERT INTO locks (key) SELECT k FROM unnest(keys) AS k ORDER BY k COLLATE "C"
    ON CONFLICT (key) DO UPDATE SET key = EXCLUDED.key;
    UPDATE locks SET awaited = true
    WHERE key = ANY (keys) AND owner <> who AND expires > clock_timestamp();
    IF FOUND THEN
        RETURN 0;
    END IF;
    -- An earlier call with this owner was granted, and its answer was lost: the grant keeps its fence.
    SELECT min(fence) INTO granted FROM locks
    WHERE key = ANY (keys) AND owner = who AND expires > clock_timestamp()
    HAVING count(*) = cardinality(keys) AND min(fence) = max(fence);
    -- Taken while the rows are locked, so a later grant of any of the keys has a greater fence.
    granted := coalesce(granted, nextval('locks_fence'));
    UPDATE locks
    SET awaited = awaited AND owner = who, owner = who, fence = granted, expires = clock_timestamp() + ttl
    WHERE key = ANY (keys);
    RETURN granted;
END $$;
-- +goose StatementEnd

-- locks_renew restarts the TTL of all keys of a grant, or of none. The fence is compared as well
-- as the owner, so that a delayed duplicate of locks_acquire cannot revive a grant.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION locks_renew(keys text[], who text, granted bigint, ttl interval) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    held integer;
BEGIN
    PERFORM FROM locks
    WHERE key = ANY (keys) AND owner = who AND fence = granted AND expires > clock_timestamp()
    ORDER BY key FOR UPDATE;
    GET DIAGNOSTICS held = ROW_COUNT;
    IF held < cardinality(keys) THEN
        RETURN false;
    END IF;
    UPDATE locks SET expires = clock_timestamp() + ttl WHERE key = ANY (keys);
    RETURN true;
END $$;
-- +goose StatementEnd

-- locks_release frees the keys of an owner, and returns how many of them were held by this grant.
-- A transaction with a notification holds a lock of the whole server while it commits, so
-- there is none without a waiter.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION locks_release(keys text[], who text, granted bigint) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    l    locks;
    held integer := 0;
BEGIN
    FOR l IN SELECT * FROM locks
             WHERE key = ANY (keys) AND owner = who AND expires > clock_timestamp() ORDER BY key FOR UPDATE LOOP
        IF l.fence = granted THEN
            held := held + 1;
        END IF;
        IF l.awaited THEN
            PERFORM pg_notify('pglock', l.key);
        END IF;
    END LOOP;
    UPDATE locks SET owner = '', expires = '-infinity', awaited = false
    WHERE key = ANY (keys) AND owner = who AND expires > clock_timestamp();
    RETURN held;
END $$;
-- +goose StatementEnd
