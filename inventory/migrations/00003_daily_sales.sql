-- +goose Up
CREATE TABLE roll_ups (
    day     date PRIMARY KEY,                     -- in UTC
    upto    text COLLATE "C" NOT NULL DEFAULT '', -- the products up to this one are in daily_sales
    done_at timestamptz
);

CREATE TABLE daily_sales (
    day      date   NOT NULL REFERENCES roll_ups,
    sku      text COLLATE "C" NOT NULL, -- without a reference: sales outlive a product
    units    bigint NOT NULL, -- sold, less cancelled
    revenue  bigint NOT NULL, -- in minor units of currency
    currency text   NOT NULL,
    PRIMARY KEY (day, sku)
);

-- Movements are appended in about the order of time, so a summary of each range of pages finds those of a day,
-- and costs a purchase nothing.
CREATE INDEX stock_movements_time ON stock_movements USING brin (created_at);

-- +goose Down
DROP INDEX stock_movements_time;
DROP TABLE daily_sales, roll_ups;
