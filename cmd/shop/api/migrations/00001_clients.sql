-- +goose Up
CREATE TABLE clients (
    id         uuid PRIMARY KEY,
    name       text        NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 64),
    key_sha256 bytea       NOT NULL UNIQUE CHECK (octet_length(key_sha256) = 32), -- never the key itself
    admin      boolean     NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- +goose Down
DROP TABLE clients;
