package rollup_test

import (
	"testing"

	"shop/locking/idempotency/pgtx/pgtest"
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
