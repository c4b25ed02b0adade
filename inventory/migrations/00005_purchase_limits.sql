-- +goose Up
-- How many units one client may have in confirmed orders. NULL: no limit.
ALTER TABLE products ADD client_max bigint CHECK (client_max > 0);

-- What clients have of the products with a limit. Each write of a row is made under the row lock of its product.
CREATE TABLE purchased (
    sku        text COLLATE "C" NOT NULL REFERENCES products,
    client_id  uuid   NOT NULL,
    units      bigint NOT NULL, -- in confirmed orders
    client_max bigint NOT NULL, -- of the product, when the client bought last
    PRIMARY KEY (sku, client_id),
    CONSTRAINT purchased_within_limit CHECK (units BETWEEN 0 AND client_max) -- the last guard
);

-- A product gets its first limit, or loses it, by UPDATE: what was sold before is counted. A client that has more
-- than the limit keeps it. The trigger runs under the row lock, and its statements see what was committed
-- during the wait for it. With a new version, optimistic purchases that have read the old limit run again.
-- With advisory, advisory-try, naive, redis-only and slots they do not run again: the count is wrong, and the audit says so,
-- until the limit is removed and set again.
-- A replica of the version before counts nothing: give no limit before it is stopped.
-- +goose StatementBegin
CREATE FUNCTION count_purchased() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.version := OLD.version + 1;
    DELETE FROM purchased WHERE sku = NEW.sku;
    INSERT INTO purchased (sku, client_id, units, client_max)
    SELECT l.sku, o.client_id, sum(l.quantity), greatest(sum(l.quantity), NEW.client_max)
    FROM order_lines l
    JOIN orders o ON o.id = l.order_id
    WHERE l.sku = NEW.sku AND o.status = 'confirmed' AND NEW.client_max IS NOT NULL
    GROUP BY l.sku, o.client_id;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER count_purchased BEFORE UPDATE OF client_max ON products
    FOR EACH ROW WHEN ((OLD.client_max IS NULL) <> (NEW.client_max IS NULL))
    EXECUTE FUNCTION count_purchased();

-- +goose Down
DROP TRIGGER count_purchased ON products;
DROP FUNCTION count_purchased;
DROP TABLE purchased;
ALTER TABLE products DROP client_max;
