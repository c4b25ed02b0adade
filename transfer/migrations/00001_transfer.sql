-- +goose Up
CREATE TABLE accounts (
    id           uuid PRIMARY KEY,
    owner_id     uuid   NOT NULL,
    currency     text   NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    opening      bigint NOT NULL CHECK (opening >= 0),
    balance      bigint NOT NULL,
    held         bigint NOT NULL DEFAULT 0 CHECK (held >= 0), -- the sum of its reserved transfers
    version      bigint NOT NULL DEFAULT 0,                   -- counts the writes, under the row lock
    fence        bigint NOT NULL DEFAULT 0 CHECK (fence >= 0),
    fence_source text   NOT NULL DEFAULT '',                  -- the counter of the fence; '': none yet
    lease_token  text   NOT NULL DEFAULT '',                  -- of lease-id-fence only, which is wrong
    created_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT accounts_funds CHECK (balance >= held)         -- the last guard
) WITH (fillfactor = 50); -- each transfer writes two versions of a row: this leaves room for them on its page

-- An immediate transfer is created as posted. A hold is created as reserved, and ends once.
CREATE TABLE transfers (
    id              uuid PRIMARY KEY,
    client_id       uuid   NOT NULL,
    idempotency_key text   NOT NULL, -- for the audit; unique in transfer_keys, from 00002 on in idempotency_keys
    from_id         uuid   NOT NULL REFERENCES accounts,
    to_id           uuid   NOT NULL REFERENCES accounts,
    amount          bigint NOT NULL CHECK (amount > 0),
    currency        text   NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    state           text   NOT NULL CHECK (state IN ('reserved', 'posted', 'voided', 'expired')),
    settled         bigint NOT NULL DEFAULT 0, -- what moved: the amount, or less if a hold was posted in part
    created_at      timestamptz NOT NULL,
    expires_at      timestamptz,               -- holds only
    ended_at        timestamptz,
    CHECK (from_id <> to_id),
    CHECK ((state = 'posted') = (settled > 0) AND settled BETWEEN 0 AND amount),
    CHECK ((state = 'reserved') = (ended_at IS NULL)),
    CHECK (state = 'posted' OR expires_at IS NOT NULL)
);
CREATE INDEX transfers_due ON transfers (expires_at, id) WHERE state = 'reserved';
CREATE INDEX transfers_held ON transfers (from_id, expires_at) WHERE state = 'reserved';

-- Append-only: two entries for each transfer that moved money. Their sum is 0.
CREATE TABLE ledger_entries (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    transfer_id     uuid   NOT NULL REFERENCES transfers,
    account_id      uuid   NOT NULL REFERENCES accounts,
    delta           bigint NOT NULL CHECK (delta <> 0),
    account_version bigint NOT NULL,            -- of the account, after this entry: the order of its entries
    fence           bigint NOT NULL DEFAULT 0,  -- the writer's; 0: the strategy has none
    fence_source    text   NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (transfer_id, account_id),           -- no transfer moves money twice
    UNIQUE (account_id, account_version)
);

-- +goose StatementBegin
CREATE FUNCTION ledger_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'ledger_entries is append-only' USING ERRCODE = 'restrict_violation';
END $$;
-- +goose StatementEnd
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_entries
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_is_append_only();

-- Idempotency keys, written in the transaction of their effect.
CREATE TABLE transfer_keys (
    client_id   uuid        NOT NULL,
    key         text        NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 255),
    fingerprint bytea       NOT NULL CHECK (octet_length(fingerprint) = 32),
    status      integer     NOT NULL DEFAULT 0,
    body        bytea       NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (client_id, key)
);
CREATE INDEX transfer_keys_created_at ON transfer_keys (created_at);

-- The epochs that operators have started, after etcd was wiped or restored.
CREATE TABLE fence_epochs (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    was        text        NOT NULL,
    source     text        NOT NULL,
    accounts   bigint      NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- +goose Down
DROP TABLE fence_epochs, transfer_keys, ledger_entries, transfers, accounts;
DROP FUNCTION ledger_is_append_only;
