package transfer

import (
	"context"

	"github.com/jackc/pgx/v5"

	"shop/locking/invariant"
)

// Invariants need only the tables. Each is one statement, and so one
// snapshot: two sums in two statements would see two moments.
var Invariants = []invariant.Check{
	{
		// Money is neither made nor lost. (Seen from one account, that is T3.)
		Name: "T1", Invariant: "T1",
		Means: "currency of which more or less is there than was paid in",
		Query: `
SELECT currency || ' off by ' || sum(balance - opening)
FROM accounts
GROUP BY currency
HAVING sum(balance) <> sum(opening)`,
	},
	{
		Name: "T2", Invariant: "T2",
		Means: "posted transfer without its two entries, or another one with any",
		Query: `
SELECT t.id::text
FROM transfers t
LEFT JOIN ledger_entries e ON e.transfer_id = t.id
GROUP BY t.id
HAVING CASE t.state
       WHEN 'posted' THEN count(e.id) <> 2
                       OR COALESCE(sum(e.delta) FILTER (WHERE e.account_id = t.from_id), 0) <> -t.settled
                       OR COALESCE(sum(e.delta) FILTER (WHERE e.account_id = t.to_id), 0) <> t.settled
       ELSE count(e.id) <> 0 END`,
	},
	{
		Name: "T3", Invariant: "T3",
		Means: "account whose balance is not what its entries add up to, or is below what it holds",
		Query: `
SELECT a.id::text
FROM accounts a
LEFT JOIN (SELECT account_id, sum(delta) AS moved
           FROM ledger_entries
           GROUP BY account_id) l ON l.account_id = a.id
WHERE a.balance <> a.opening + COALESCE(l.moved, 0)
   OR a.held < 0
   OR a.balance < a.held`,
	},
	{
		Name: "T3 held", Invariant: "T3",
		Means: "account whose held money is not the sum of its reserved transfers",
		Query: `
SELECT a.id::text
FROM accounts a
LEFT JOIN (SELECT from_id, sum(amount) AS reserved
           FROM transfers
           WHERE state = 'reserved'
           GROUP BY from_id) h ON h.from_id = a.id
WHERE a.held <> COALESCE(h.reserved, 0)`,
	},
	{
		// Numbers of two counters cannot be compared: each source by itself.
		Name: "T4", Invariant: "T4",
		Means: "entry that was written under an older fence than the entry before it",
		Query: `
SELECT id::text
FROM (SELECT id, fence, max(fence) OVER (PARTITION BY account_id, fence_source
                                         ORDER BY account_version
                                         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newest
      FROM ledger_entries
      WHERE fence <> 0) ordered
WHERE fence < newest`,
	},
	{
		Name: "I-ONCE transfers", Invariant: "I-ONCE",
		Means: "key that made another transfer while its answer was kept",
		Query: `
SELECT DISTINCT t.client_id || ' ' || t.idempotency_key
FROM (SELECT client_id, idempotency_key, created_at,
             lag(created_at) OVER (PARTITION BY client_id, idempotency_key ORDER BY created_at) AS earlier
      FROM transfers) t
LEFT JOIN idempotency_keys k ON k.client_id = t.client_id AND k.key = t.idempotency_key
WHERE t.created_at - t.earlier < ` + keysKept + `
   OR k.created_at <= t.earlier`,
	},
	{
		Name: "I-ONCE answers", Invariant: "I-ONCE",
		Means: "key whose stored answer is a refusal although it made a transfer, or that has none",
		Query: `
SELECT t.client_id || ' ' || t.idempotency_key
FROM transfers t
LEFT JOIN idempotency_keys k ON k.client_id = t.client_id AND k.key = t.idempotency_key
WHERE k.status NOT BETWEEN 200 AND 299 AND k.created_at - t.created_at < ` + keysKept + `
   OR k.status IS NULL AND t.created_at > now() - ` + keysKept,
	},
}

// keysKept is how long a key names one request, at the least. After that its answer
// may be purged, and the key used again. Answers are kept for 24 hours from the
// beginning of their transaction; the effect is dated later, by at most a request's time.
const keysKept = `interval '23 hours'`

// Audit counts what breaks the invariants that can be seen in the tables alone.
// Every number is 0 where no money was lost or made.
func Audit(ctx context.Context, db invariant.Querier[pgx.Rows]) (map[string]int64, error) {
	findings, err := invariant.Run(ctx, Invariants, invariant.SQL(db))
	if err != nil {
		return nil, err
	}
	counts := findings.Counts()
	counts["drift"], err = invariant.Number(ctx, db, DriftSQL("accounts"))
	return counts, err
}

// DriftSQL is the number that an owner feels: minor units by which balances
// differ from their openings and their entries. The openings are those of a
// table: the service's own, or what the plan opened.
func DriftSQL(opened string) string {
	return `
SELECT COALESCE(sum(abs(COALESCE(a.balance, 0) - COALESCE(o.opening, 0) - COALESCE(l.moved, 0))), 0)::bigint
FROM accounts a
FULL JOIN ` + opened + ` o ON o.id = a.id
LEFT JOIN (SELECT account_id, sum(delta) AS moved
           FROM ledger_entries
           GROUP BY account_id) l ON l.account_id = COALESCE(a.id, o.id)`
}
