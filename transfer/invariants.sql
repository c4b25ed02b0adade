-- The invariants of the transfer tables. Each query returns the ids of the rows that break an
-- invariant, and no row if it holds; each can be pasted into psql. A query is one statement, so
-- it reads one snapshot (two sums in two statements would read two), and may run while there is
-- traffic. The proof, `shop audit` and /v1/audit run this file.
--
-- A key identifies one request for at least 23 hours. After that its answer may be purged, and
-- the key reused. (Answers are kept for 24 hours from the beginning of their transaction. The
-- time of the effect is later, by at most the duration of a request.)
--
-- invariant: T1 money-conserved: in each currency, the sum of all balances is the sum of all openings
-- invariant: T2 entry-pairs: a posted transfer has two entries whose sum is 0, every other transfer has none
-- invariant: T3 account-balance: a balance is the opening plus the entries, the held amount is the sum of the holds, and is not more than the balance
-- invariant: T4 fence-order: in the order of an account's versions, the fences of its entries never decrease

-- name: T1
-- finds: currency in which the sum of all balances is not the sum of all openings
-- Money is neither made nor lost. (T3 checks the same for each account.)
SELECT currency || ' off by ' || sum(balance - opening)
FROM accounts
GROUP BY currency
HAVING sum(balance) <> sum(opening);

-- name: T2
-- finds: posted transfer without its two entries, or other transfer with entries
SELECT t.id::text
FROM transfers t
LEFT JOIN ledger_entries e ON e.transfer_id = t.id
GROUP BY t.id
HAVING CASE t.state
       WHEN 'posted' THEN count(e.id) <> 2
                       OR COALESCE(sum(e.delta) FILTER (WHERE e.account_id = t.from_id), 0) <> -t.settled
                       OR COALESCE(sum(e.delta) FILTER (WHERE e.account_id = t.to_id), 0) <> t.settled
       ELSE count(e.id) <> 0 END;

-- name: T3
-- finds: account whose balance is not its opening plus its entries, or is less than its held amount
SELECT a.id::text
FROM accounts a
LEFT JOIN (SELECT account_id, sum(delta) AS moved
           FROM ledger_entries
           GROUP BY account_id) l ON l.account_id = a.id
WHERE a.balance <> a.opening + COALESCE(l.moved, 0)
   OR a.held < 0
   OR a.balance < a.held;

-- name: T3 held
-- finds: account whose held amount is not the sum of its reserved transfers
SELECT a.id::text
FROM accounts a
LEFT JOIN (SELECT from_id, sum(amount) AS reserved
           FROM transfers
           WHERE state = 'reserved'
           GROUP BY from_id) h ON h.from_id = a.id
WHERE a.held <> COALESCE(h.reserved, 0);

-- name: T4
-- finds: entry with an older fence than an earlier entry of its account
-- Fences of two epochs cannot be compared, so each epoch is checked by itself.
SELECT id::text
FROM (SELECT id, fence, max(fence) OVER (PARTITION BY account_id, fence_epoch
                                         ORDER BY account_version
                                         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newest
      FROM ledger_entries
      WHERE fence <> 0) ordered
WHERE fence < newest;

-- name: I-ONCE transfers
-- finds: key that made a second transfer while the answer to the first was kept
SELECT DISTINCT t.client_id || ' ' || t.idempotency_key
FROM (SELECT client_id, idempotency_key, created_at,
             lag(created_at) OVER (PARTITION BY client_id, idempotency_key ORDER BY created_at) AS earlier
      FROM transfers) t
LEFT JOIN idempotency_keys k ON k.client_id = t.client_id AND k.key = t.idempotency_key
WHERE t.created_at - t.earlier < interval '23 hours'
   OR k.created_at <= t.earlier;

-- name: I-ONCE answers
-- finds: key that made a transfer although its stored answer is a refusal, or is missing
SELECT t.client_id || ' ' || t.idempotency_key
FROM transfers t
LEFT JOIN idempotency_keys k ON k.client_id = t.client_id AND k.key = t.idempotency_key
WHERE k.status NOT BETWEEN 200 AND 299 AND k.created_at - t.created_at < interval '23 hours'
   OR k.status IS NULL AND t.created_at > now() - interval '23 hours';

-- number: drift
-- finds: minor units by which balances differ from their openings plus entries
SELECT COALESCE(sum(abs(a.balance - a.opening - COALESCE(l.moved, 0))), 0)::bigint
FROM accounts a
LEFT JOIN (SELECT account_id, sum(delta) AS moved
           FROM ledger_entries
           GROUP BY account_id) l ON l.account_id = a.id;
