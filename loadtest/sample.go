package loadtest

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest/fault"
)

// Sample is one look at the database while the load runs.
type Sample struct {
	At     time.Duration
	Levels []Level // in order of name
}

// Level is how much there is of something.
type Level struct {
	Name string
	Says int64 // by the row that keeps it: the shelf, the balances
	True int64 // by everything that changed it; below 0, units were sold that never were there
}

// total adds the products up.
func (s Sample) total() (sum Level) {
	for _, l := range s.Levels {
		sum.Says += l.Says
		sum.True += l.True
	}
	return sum
}

// sampleEvery is often enough for a curve, and rare enough not to be load.
const sampleEvery = 100 * time.Millisecond

// shelvesSQL is one statement, so it sees one snapshot: at any moment, not only
// in the end, the shelf has to agree with the orders.
const shelvesSQL = `
SELECT p.sku, p.stock, (COALESCE(put.units, 0) - COALESCE(bought.units, 0))::bigint
FROM products p
LEFT JOIN (SELECT sku, sum(quantity) AS units
           FROM stock_movements
           WHERE kind IN ('opening', 'restock')
           GROUP BY sku) put ON put.sku = p.sku
LEFT JOIN (SELECT l.sku, sum(l.quantity) AS units
           FROM order_lines l
           JOIN orders o ON o.id = l.order_id
           WHERE o.status = 'confirmed'
           GROUP BY l.sku) bought ON bought.sku = p.sku
ORDER BY p.sku`

func watchShelves(ctx context.Context, stores Stores, clock func() time.Duration) ([]Sample, error) {
	return watch(ctx, stores.Postgres, shelvesSQL, clock)
}

// watch asks a database for its levels until ctx ends. That the server goes away
// for a while is no error, but a gap between two samples.
func watch(ctx context.Context, databaseURL, sql string, clock func() time.Duration) ([]Sample, error) {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var samples []Sample
	for {
		s := Sample{At: clock()}
		rows, _ := conn.Query(ctx, sql) // CollectRows tells its error
		s.Levels, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Level])
		switch {
		case ctx.Err() != nil:
			return samples, nil
		case err == nil:
			samples = append(samples, s)
		case !conn.IsClosed():
			return samples, err
		default:
			if again, err := pgx.Connect(ctx, databaseURL); err == nil {
				conn = again
			}
		}
		if !fault.Wait(ctx, sampleEvery) {
			return samples, nil
		}
	}
}

// apart lists where what is said and what is true did not agree.
func apart(samples []Sample) []string {
	var found []string
	for _, s := range samples {
		for _, l := range s.Levels {
			if l.Says != l.True {
				found = append(found, fmt.Sprintf("%s at %v: says %d, should be %d", l.Name, s.At.Round(time.Millisecond), l.Says, l.True))
			}
		}
	}
	return found
}

// shelfAt is what the shelf said of a product at the last look before a moment.
func shelfAt(samples []Sample, sku string, at time.Duration) (n int64, seen bool) {
	for _, s := range samples {
		for _, l := range s.Levels {
			if l.Name == sku && s.At <= at {
				n, seen = l.Says, true
			}
		}
	}
	return n, seen
}

// driftLevel is how far balances are from their entries.
const driftLevel = "drift"

// moneySQL is one statement, so it sees one snapshot: two sums in two statements
// would see two moments.
const moneySQL = `
SELECT a.currency, sum(a.balance)::bigint, sum(a.opening)::bigint
FROM accounts a
GROUP BY a.currency
UNION ALL
SELECT 'accounts below what they hold', count(*) FILTER (WHERE balance < held), 0
FROM accounts
UNION ALL
SELECT '` + driftLevel + `', COALESCE(sum(abs(a.balance - a.opening - COALESCE(l.moved, 0))), 0)::bigint, 0
FROM accounts a
LEFT JOIN (SELECT account_id, sum(delta) AS moved
           FROM ledger_entries
           GROUP BY account_id) l ON l.account_id = a.id
ORDER BY 1`

func watchMoney(ctx context.Context, stores Stores, clock func() time.Duration) ([]Sample, error) {
	return watch(ctx, stores.Postgres, moneySQL, clock)
}
