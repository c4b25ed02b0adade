-- What must be true of the tables of transfers. Each query returns the ids of what breaks an
-- invariant, and no row where it holds: copy any of them into psql. Each is one statement,
-- and so reads one snapshot (two sums in two statements would see two moments), and may run
-- while there is traffic. The proof, `shop audit` and /v1/audit run this file.
--
-- A key names one request for 23 hours at the least. After that its answer may be purged, and
-- the key used again. (Answers are kept for 24 hours from the beginning of their transaction;
-- the effect is dated later, by at most a request's time.)
--
-- invariant: T1 money-conserved: all money that was paid in is there, and no more
-- invariant: T2 entry-pairs: a posted transfer has two entries that sum up to nothing, every other one has none
-- invariant: T3 account-balance: a balance is its opening and its entries, what is held is the sum of the holds, and no more is held than there is
-- invariant: T4 fence-order: the fences of an account's entries never go down

-- name: T1
-- finds: currency of which more or less is there than was paid in
-- Money is neither made nor lost. (Seen from one account, that is T3.)
SELECT currency || ' off by ' || sum(balance - opening)
FROM accounts
GROUP BY currency
HAVING sum(balance) <> sum(opening);

-- name: T2
-- finds: posted transfer without its two entries, or another one with any
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
-- finds: account whose balance is not what its entries add up to, or is below what it holds
SELECT a.id::text
FROM accounts a
LEFT JOIN (SELECT account_id, sum(delta) AS moved
           FROM ledger_entries
           GROUP BY account_id) l ON l.account_id = a.id
WHERE a.balance <> a.opening + COALESCE(l.moved, 0)
   OR a.held < 0
   OR a.balance < a.held;

-- name: T3 held
-- finds: account whose held money is not the sum of its reserved transfers
SELECT a.id::text
FROM accounts a
LEFT JOIN (SELECT from_id, sum(amount) AS reserved
           FROM transfers
           WHERE state = 'reserved'
           GROUP BY from_id) h ON h.from_id = a.id
WHERE a.held <> COALESCE(h.reserved, 0);

-- name: T4
-- finds: entry that was written under an older fence than the entry before it
-- Numbers of two counters cannot be compared: each epoch by itself.
SELECT id::text
FROM (SELECT id, fence, max(fence) OVER (PARTITION BY account_id, fence_epoch
                                         ORDER BY account_version
                                         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newest
      FROM ledger_entries
      WHERE fence <> 0) ordered
WHERE fence < newest;

-- name: I-ONCE transfers
-- finds: key that made another transfer while its answer was kept
SELECT DISTINCT t.client_id || ' ' || t.idempotency_key
FROM (SELECT client_id, idempotency_key, created_at,
             lag(created_at) OVER (PARTITION BY client_id, idempotency_key ORDER BY created_at) AS earlier
      FROM transfers) t
LEFT JOIN idempotency_keys k ON k.client_id = t.client_id AND k.key = t.idempotency_key
WHERE t.created_at - t.earlier < interval '23 hours'
   OR k.created_at <= t.earlier;

-- name: I-ONCE answers
-- finds: key whose stored answer is a refusal although it made a transfer, or that has none
SELECT t.client_id || ' ' || t.idempotency_key
FROM transfers t
LEFT JOIN idempotency_keys k ON k.client_id = t.client_id AND k.key = t.idempotency_key
WHERE k.status NOT BETWEEN 200 AND 299 AND k.created_at - t.created_at < interval '23 hours'
   OR k.status IS NULL AND t.created_at > now() - interval '23 hours';

-- number: drift
-- finds: minor units by which balances differ from their openings and their entries
SELECT COALESCE(sum(abs(a.balance - a.opening - COALESCE(l.moved, 0))), 0)::bigint
FROM accounts a
LEFT JOIN (SELECT account_id, sum(delta) AS moved
           FROM ledger_entries
           GROUP BY account_id) l ON l.account_id = a.id;
