-- What a role needs that serves, runs the batch and audits, and no more. It cannot alter a table or a
-- trigger, nor change a client, an entry of the ledger or a movement of stock. shop migrate fills in the
-- names of the role and of the schema.
REVOKE ALL ON products, products_with_slots, stock_slots, purchased, orders, order_lines, stock_movements, accounts, transfers, ledger_entries, fence_epochs,
    clients, idempotency_keys, roll_ups, daily_sales, locks FROM "server";
REVOKE ALL ON SEQUENCE locks_fence FROM "server";
REVOKE CREATE ON SCHEMA "schema" FROM "server";
GRANT USAGE ON SCHEMA "schema" TO "server";

GRANT SELECT ON clients, fence_epochs, products_with_slots TO "server";
GRANT SELECT, UPDATE ON products, accounts TO "server"; -- SELECT … FOR UPDATE needs UPDATE
GRANT SELECT, INSERT ON order_lines, stock_movements, ledger_entries TO "server";
GRANT SELECT, INSERT, UPDATE ON purchased, orders, transfers TO "server";
GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_keys, stock_slots TO "server";

-- Of the batch: the sales of a day, under a lock of package pglock.
GRANT SELECT, INSERT, UPDATE ON roll_ups, daily_sales, locks TO "server";
GRANT USAGE ON SEQUENCE locks_fence TO "server";
