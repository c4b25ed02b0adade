package loadtest

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Sample is one look at the database while the load runs.
type Sample struct {
	At    time.Duration
	Shelf int64 // what the products say is left
	True  int64 // what is left after all orders: below 0, units were sold that never were there
}

// sampleEvery is often enough for a curve, and rare enough not to be load.
const sampleEvery = 100 * time.Millisecond

// sampleSQL is one statement, so it sees one snapshot: at any moment, not only
// in the end, the shelf has to agree with the orders.
const sampleSQL = `
SELECT (SELECT sum(stock) FROM products)::bigint,
       ((SELECT sum(quantity) FROM stock_movements WHERE kind IN ('opening', 'restock'))
        - (SELECT COALESCE(sum(l.quantity), 0)
           FROM order_lines l
           JOIN orders o ON o.id = l.order_id
           WHERE o.status = 'confirmed'))::bigint`

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
		err := conn.QueryRow(ctx, sampleSQL).Scan(&s.Shelf, &s.True)
		if ctx.Err() != nil {
			return samples, nil
		}
		if err != nil {
			return samples, err
		}
		samples = append(samples, s)
		if !pause(ctx, sampleEvery) {
			return samples, nil
		}
	}
}

// apart lists the samples in which shelf and orders did not agree.
func apart(samples []Sample) []string {
	var at []string
	for _, s := range samples {
		if s.Shelf != s.True {
			at = append(at, s.At.Round(time.Millisecond).String())
		}
	}
	return at
}
