-- +goose Up
CREATE TABLE products (
    sku        text COLLATE "C" PRIMARY KEY CHECK (octet_length(sku) BETWEEN 1 AND 64),
    name       text        NOT NULL,
    price      bigint      NOT NULL CHECK (price >= 0),
    currency   text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    stock      bigint      NOT NULL CHECK (stock >= 0), -- the last guard
    version    bigint      NOT NULL DEFAULT 0,          -- for the optimistic strategy
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE orders (
    id              uuid PRIMARY KEY,
    client_id       uuid        NOT NULL,
    idempotency_key text        NOT NULL, -- for the audit; unique in order_keys, from 00002 on in idempotency_keys
    status          text        NOT NULL CHECK (status IN ('confirmed', 'cancelled')),
    total           bigint      NOT NULL CHECK (total >= 0),
    currency        text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    created_at      timestamptz NOT NULL DEFAULT now(),
    cancelled_at    timestamptz,
    CHECK ((status = 'cancelled') = (cancelled_at IS NOT NULL))
);

CREATE TABLE order_lines (
    order_id   uuid   NOT NULL REFERENCES orders,
    sku        text COLLATE "C" NOT NULL REFERENCES products,
    quantity   bigint NOT NULL CHECK (quantity > 0),
    unit_price bigint NOT NULL CHECK (unit_price >= 0),
    PRIMARY KEY (order_id, sku)
);
CREATE INDEX order_lines_sku ON order_lines (sku);

-- Append-only: what stock is, and why.
CREATE TABLE stock_movements (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sku        text COLLATE "C" NOT NULL REFERENCES products,
    kind       text        NOT NULL CHECK (kind IN ('opening', 'sale', 'cancel', 'restock')),
    quantity   bigint      NOT NULL, -- what is added to stock: negative for a sale
    order_id   uuid REFERENCES orders,
    created_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((kind = 'sale') = (quantity < 0) AND quantity <> 0 OR (kind = 'opening' AND quantity = 0)),
    CHECK ((kind IN ('sale', 'cancel')) = (order_id IS NOT NULL))
);
CREATE UNIQUE INDEX stock_movements_once ON stock_movements (order_id, sku, kind) WHERE order_id IS NOT NULL;
CREATE INDEX stock_movements_sku ON stock_movements (sku);

-- Idempotency keys, written in the transaction of their effect.
CREATE TABLE order_keys (
    client_id   uuid        NOT NULL,
    key         text        NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 255),
    fingerprint bytea       NOT NULL CHECK (octet_length(fingerprint) = 32),
    status      integer     NOT NULL DEFAULT 0,
    body        bytea       NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (client_id, key)
);
CREATE INDEX order_keys_created_at ON order_keys (created_at);

-- +goose Down
DROP TABLE order_keys, stock_movements, order_lines, orders, products;
