// SPDX-License-Identifier: MIT

package rollup_test

import (
	"context"
	"testing"
	"time"

	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
)

// A movement at midnight counts on the day that begins, and on no other; so do those a microsecond before and after it.
func TestRun_CountsAMovementAtMidnightOnce(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t, "inventory", "locking/pglock")
	d.Exec(`INSERT INTO products (sku, name, price, currency, stock) VALUES ('p', 'p', 100, 'EUR', 0)`)
	// Of 1, 10 and 100 units, so that each sum tells which of them are in it. Midnight is the one between two days that are over.
	d.Exec(`
		WITH sold AS (
			SELECT gen_random_uuid() AS id, 10 ^ (n + 1) AS units,
			       (date_trunc('day', now() AT TIME ZONE 'UTC') - interval '2 days' + make_interval(secs => n / 1e6)) AT TIME ZONE 'UTC' AS at
			FROM generate_series(-1, 1) AS n
		), ordered AS (
			INSERT INTO orders (id, client_id, idempotency_key, status, total, currency)
			SELECT id, id, 'k', 'confirmed', units * 100, 'EUR' FROM sold
		), lines AS (
			INSERT INTO order_lines (order_id, sku, quantity, unit_price) SELECT id, 'p', units, 100 FROM sold
		)
		INSERT INTO stock_movements (sku, kind, quantity, order_id, created_at)
		SELECT 'p', 'sale', -units, id, at FROM sold ORDER BY at`)
	if _, err := roller(t, d).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for daysAgo, want := range map[int]int64{3: 1, 2: 110} {
		got := d.Number(`
			SELECT coalesce(sum(units), 0)::bigint
			FROM daily_sales
			WHERE day = (now() AT TIME ZONE 'UTC')::date - $1::int`, daysAgo)
		if got != want {
			t.Errorf("%d units in the day %d days ago, want %d", got, daysAgo, want)
		}
	}
}

// A COMMIT that waits for a synchronous standby outlasts its day: what it has written is seen when the standby is back.
func TestRun_ADayWaitsForTheTransactionsThatBeganInIt(t *testing.T) {
	t.Parallel()
	d := open(t)
	r := roller(t, d).DueAfter(-24 * time.Hour) // today is over
	tx, err := d.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `UPDATE products SET stock = stock`); err != nil {
		t.Fatal(err)
	}
	before := d.Number(`SELECT (now() AT TIME ZONE 'UTC')::date - (SELECT min(created_at AT TIME ZONE 'UTC') FROM stock_movements)::date`)
	if days, err := r.Run(t.Context()); err != nil || len(days) != int(before) {
		t.Errorf("%v, %v: want the %d days before today", days, err, before)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	locktest.Eventually(t, "today is done, when the transactions of other tests have ended", func() bool {
		days, err := r.Run(t.Context())
		return err == nil && len(days) == 1
	})
}
