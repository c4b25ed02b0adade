-- +goose Up
-- A day is added up in pieces of its movements, and not of its products: one product may have millions of them.
-- A day that is half done begins again. A batch of the version before fails from here on: its column is gone.
ALTER TABLE roll_ups
    DROP upto,
    ADD upto_time timestamptz,               -- the movements up to this one are in daily_sales; NULL: none yet
    ADD upto_id   bigint NOT NULL DEFAULT 0;
DELETE FROM daily_sales
USING roll_ups
WHERE roll_ups.day = daily_sales.day AND done_at IS NULL;

-- A price may be near the end of bigint, and two such sales are beyond it.
ALTER TABLE daily_sales
    ALTER units TYPE numeric,
    ALTER revenue TYPE numeric;

-- +goose Down
DELETE FROM daily_sales
USING roll_ups
WHERE roll_ups.day = daily_sales.day AND done_at IS NULL;
ALTER TABLE daily_sales
    ALTER units TYPE bigint,
    ALTER revenue TYPE bigint;
ALTER TABLE roll_ups
    DROP upto_time,
    DROP upto_id,
    ADD upto text COLLATE "C" NOT NULL DEFAULT '';
