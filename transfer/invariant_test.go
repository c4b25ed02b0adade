package transfer_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// broken checks the invariants by SQL, and lists what does not hold.
func (b *bank) broken() []string {
	b.t.Helper()
	// One statement, one snapshot. LEFT JOINs, so that an account without entries is seen.
	rows, _ := b.pool.Query(context.Background(), `
		SELECT 'T1: the sum of balances is ' || COALESCE(sum(balance), 0) || ', of openings ' || COALESCE(sum(opening), 0)
		FROM accounts HAVING sum(balance) <> sum(opening)
		UNION ALL
		SELECT 'T2: transfer ' || t.id || ' (' || t.state || ') has ' || count(e.id) || ' entries of ' || t.settled || ', sum ' || COALESCE(sum(e.delta), 0)
		FROM transfers t LEFT JOIN ledger_entries e ON e.transfer_id = t.id
		GROUP BY t.id
		HAVING count(e.id) <> CASE t.state WHEN 'posted' THEN 2 ELSE 0 END
		    OR COALESCE(sum(e.delta), 0) <> 0
		    OR COALESCE(sum(e.delta) FILTER (WHERE e.account_id = t.from_id), 0) <> -t.settled
		    OR COALESCE(sum(e.delta) FILTER (WHERE e.account_id = t.to_id), 0) <> t.settled
		UNION ALL
		SELECT 'T3: account ' || a.id || ' has ' || a.balance || ', its ledger says ' || a.opening + COALESCE(sum(e.delta), 0)
		FROM accounts a LEFT JOIN ledger_entries e ON e.account_id = a.id
		GROUP BY a.id
		HAVING a.balance <> a.opening + COALESCE(sum(e.delta), 0)
		UNION ALL
		SELECT 'T4: account ' || account_id || ' version ' || account_version || ' was written with fence ' || fence || ' after ' || before
		FROM (SELECT *, lag(fence) OVER (PARTITION BY account_id, fence_epoch ORDER BY account_version) AS before FROM ledger_entries) e
		WHERE fence < before
		UNION ALL
		SELECT 'T5: key ' || idempotency_key || ' has ' || count(*) || ' transfers'
		FROM transfers GROUP BY client_id, idempotency_key HAVING count(*) > 1
		UNION ALL
		SELECT 'T5: transfer ' || t.id || ' has no key'
		FROM transfers t LEFT JOIN idempotency_keys k ON k.client_id = t.client_id AND k.key = t.idempotency_key
		WHERE k.key IS NULL
		UNION ALL
		SELECT 'held: account ' || a.id || ' holds ' || a.held || ', its transfers say ' || COALESCE(sum(t.amount), 0)
		FROM accounts a LEFT JOIN transfers t ON t.from_id = a.id AND t.state = 'reserved'
		GROUP BY a.id
		HAVING a.held <> COALESCE(sum(t.amount), 0) OR a.balance < a.held OR a.held < 0`)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.t.Fatal(err)
	}
	if sum := b.number(`SELECT COALESCE(sum(balance), 0)::bigint FROM accounts`); sum != b.total {
		list = append(list, fmt.Sprintf("T1: there are %d, there were %d", sum, b.total))
	}
	return list
}

// mustHold fails the test if an invariant is broken.
func (b *bank) mustHold() {
	b.t.Helper()
	for _, line := range b.broken() {
		b.t.Error(line)
	}
}
