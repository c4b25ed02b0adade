package loadtest

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Sample is one look at the database while the load runs.
type Sample struct {
	At     time.Duration
	Levels []Level // of every product, in order of sku
}

// Level is how much of a product there is.
type Level struct {
	SKU   string
	Shelf int64 // what the product's row says is left
	True  int64 // what is left after all orders: below 0, units were sold that never were there
}

// total adds the products up.
func (s Sample) total() (sum Level) {
	for _, l := range s.Levels {
		sum.Shelf += l.Shelf
		sum.True += l.True
	}
	return sum
}

// sampleEvery is often enough for a curve, and rare enough not to be load.
const sampleEvery = 100 * time.Millisecond

// sampleSQL is one statement, so it sees one snapshot: at any moment, not only
// in the end, the shelf has to agree with the orders.
const sampleSQL = `
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

// Watch samples the database until ctx ends.
func Watch(ctx context.Context, databaseURL string, clock func() time.Duration) ([]Sample, error) {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var samples []Sample
	for {
		s := Sample{At: clock()}
		rows, _ := conn.Query(ctx, sampleSQL) // CollectRows tells its error
		s.Levels, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Level])
		switch {
		case ctx.Err() != nil:
			return samples, nil
		case err != nil:
			return samples, err
		}
		samples = append(samples, s)
		if !pause(ctx, sampleEvery) {
			return samples, nil
		}
	}
}

// apart lists where shelf and orders did not agree.
func apart(samples []Sample) []string {
	var found []string
	for _, s := range samples {
		for _, l := range s.Levels {
			if l.Shelf != l.True {
				found = append(found, fmt.Sprintf("%s at %v: %d on the shelf, %d after all orders", l.SKU, s.At.Round(time.Millisecond), l.Shelf, l.True))
			}
		}
	}
	return found
}

// shelfAt is what the shelf said of a product at the last look before a moment.
func shelfAt(samples []Sample, sku string, at time.Duration) (n int64, seen bool) {
	for _, s := range samples {
		for _, l := range s.Levels {
			if l.SKU == sku && s.At <= at {
				n, seen = l.Shelf, true
			}
		}
	}
	return n, seen
}
