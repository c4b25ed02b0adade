-- +goose Up
-- One row for each key that was ever locked. A row that is not held may be deleted: the next fence of
-- its key is then the clock's.
-- +goose StatementBegin
CREATE TABLE IF NOT EXISTS locks (
    name    VARBINARY(512) NOT NULL PRIMARY KEY,                -- bytes: no collation makes two keys one
    owner   VARBINARY(64)  NOT NULL DEFAULT '',                 -- random for each grant; '': free
    fence   BIGINT         NOT NULL DEFAULT 0,                  -- of the last grant
    expires DATETIME(6)    NOT NULL DEFAULT '1970-01-01 00:00:00' -- in UTC, whatever the session's time zone
) ENGINE = InnoDB;
-- +goose StatementEnd

-- Each procedure is one transaction. It takes names separated by NUL, which no key contains, in
-- their order, so that no two calls wait for each other. UTC_TIMESTAMP is the start of its statement, so
-- rows are locked in an earlier statement, except by a release. Above READ COMMITTED a request would lock gaps, and
-- read from a snapshot older than its row locks. Without autocommit the session may be in a transaction before, which is
-- empty. A grant of one free key that has a row needs no procedure: table.go.

-- locks_acquire takes all keys for an owner, or none, for ttl microseconds. Its result is the fence, or
-- 0 if another owner holds a key. Called twice with one owner it makes one grant, with one fence.
-- +goose StatementBegin
CREATE PROCEDURE IF NOT EXISTS locks_acquire(wanted MEDIUMBLOB, who VARBINARY(512), ttl BIGINT)
SQL SECURITY INVOKER
request: BEGIN
    DECLARE rest MEDIUMBLOB DEFAULT wanted;
    DECLARE k, holder VARBINARY(512);
    DECLARE seen, granted BIGINT DEFAULT 0;
    DECLARE live, again BOOLEAN DEFAULT TRUE;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    ROLLBACK;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    WHILE LENGTH(rest) > 0 DO
        SET k = SUBSTRING_INDEX(rest, x'00', 1), rest = SUBSTRING(rest, LENGTH(k) + 2);
        -- Here most refusals lock no row, and write nothing.
        IF EXISTS (SELECT 1 FROM locks WHERE name = k AND owner <> who AND expires > UTC_TIMESTAMP(6)) THEN
            ROLLBACK;
            SELECT 0;
            LEAVE request;
        END IF;
        -- Locks the row, and adds it if it is missing.
        INSERT INTO locks (name) VALUES (k) ON DUPLICATE KEY UPDATE owner = owner;
        SELECT owner, fence, expires > UTC_TIMESTAMP(6) INTO holder, seen, live FROM locks WHERE name = k FOR UPDATE;
        IF live AND holder <> who THEN
            ROLLBACK;
            SELECT 0;
            LEAVE request;
        END IF;
        SET again = again AND live, granted = GREATEST(granted, seen + 1);
    END WHILE;
    -- again: an earlier call with this owner was granted, and its answer was lost. The grant keeps its fence.
    -- Otherwise the fence is above that of each key, and not below the clock, in case a row was deleted.
    SET granted = IF(again, seen, GREATEST(granted, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))), rest = wanted;
    WHILE LENGTH(rest) > 0 DO
        SET k = SUBSTRING_INDEX(rest, x'00', 1), rest = SUBSTRING(rest, LENGTH(k) + 2);
        UPDATE locks SET owner = who, fence = granted, expires = UTC_TIMESTAMP(6) + INTERVAL ttl MICROSECOND WHERE name = k;
    END WHILE;
    COMMIT;
    SELECT granted;
END
-- +goose StatementEnd

-- locks_renew restarts the TTL of all keys of a grant, or of none. Its result is 1 or 0. The fence is
-- compared as well as the owner, so that a delayed duplicate of locks_acquire cannot revive a grant.
-- +goose StatementBegin
CREATE PROCEDURE IF NOT EXISTS locks_renew(wanted MEDIUMBLOB, who VARBINARY(512), granted BIGINT, ttl BIGINT)
SQL SECURITY INVOKER
request: BEGIN
    DECLARE rest MEDIUMBLOB DEFAULT wanted;
    DECLARE k VARBINARY(512);
    DECLARE held INT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    ROLLBACK;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    WHILE LENGTH(rest) > 0 DO
        SET k = SUBSTRING_INDEX(rest, x'00', 1), rest = SUBSTRING(rest, LENGTH(k) + 2);
        SELECT COUNT(*) INTO held FROM locks WHERE name = k FOR UPDATE;
        SELECT COUNT(*) INTO held FROM locks
        WHERE name = k AND owner = who AND fence = granted AND expires > UTC_TIMESTAMP(6) FOR UPDATE;
        IF held = 0 THEN
            ROLLBACK;
            SELECT 0;
            LEAVE request;
        END IF;
        UPDATE locks SET expires = UTC_TIMESTAMP(6) + INTERVAL ttl MICROSECOND WHERE name = k;
    END WHILE;
    COMMIT;
    SELECT 1;
END
-- +goose StatementEnd

-- locks_release frees the keys of an owner. Its result is how many of them were held by this grant.
-- +goose StatementBegin
CREATE PROCEDURE IF NOT EXISTS locks_release(wanted MEDIUMBLOB, who VARBINARY(512), granted BIGINT)
SQL SECURITY INVOKER
BEGIN
    DECLARE rest MEDIUMBLOB DEFAULT wanted;
    DECLARE k VARBINARY(512);
    DECLARE held INT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        ROLLBACK;
        RESIGNAL;
    END;
    ROLLBACK;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    WHILE LENGTH(rest) > 0 DO
        SET k = SUBSTRING_INDEX(rest, x'00', 1), rest = SUBSTRING(rest, LENGTH(k) + 2);
        UPDATE locks SET fence = LAST_INSERT_ID(fence), owner = '', expires = '1970-01-01 00:00:00'
        WHERE name = k AND owner = who AND expires > UTC_TIMESTAMP(6);
        SET held = held + (ROW_COUNT() = 1 AND LAST_INSERT_ID() = granted);
    END WHILE;
    COMMIT;
    SELECT held;
END
-- +goose StatementEnd
