-- A bank with {{rows}} accounts, the first of which are paid by the second: {{rows}} transfers.
SET session_replication_role = replica;
CREATE UNLOGGED TABLE opened AS
SELECT i, gen_random_uuid() AS id, gen_random_uuid() AS owner FROM generate_series(0, {{rows}} - 1) AS i;
CREATE UNLOGGED TABLE paid AS
SELECT gen_random_uuid() AS id, payer.id AS payer, payer.owner AS client, payee.id AS payee,
       now() - interval '3 days' + payer.i * interval '1 ms' AS at
FROM opened AS payer
JOIN opened AS payee ON payee.i = (payer.i + 1) % {{rows}};
INSERT INTO accounts (id, owner_id, currency, opening, balance, version, fence, fence_epoch)
SELECT id, owner, 'EUR', 100, 100, 2, 7, 'old' FROM opened;
INSERT INTO transfers (id, client_id, idempotency_key, from_id, to_id, amount, currency, state, settled, created_at, ended_at)
SELECT id, client, id::text, payer, payee, 1, 'EUR', 'posted', 1, at, at FROM paid;
INSERT INTO ledger_entries (transfer_id, account_id, delta, account_version, fence, fence_epoch, created_at)
SELECT id, payer, -1, 1, 7, 'old', at FROM paid
UNION ALL
SELECT id, payee, 1, 2, 7, 'old', at FROM paid;
DROP TABLE opened, paid;
