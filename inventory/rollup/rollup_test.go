package rollup_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shop/inventory/rollup"
	"shop/locking"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/pglock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// products are three chunks.
const products = `
INSERT INTO products (sku, name, price, currency, stock)
SELECT 'p' || lpad(i::text, 3, '0'), 'p', 100, 'EUR', 1000 FROM generate_series(1, 250) AS i`

// sales are sales of the three days before today, and cancellations a day after their sale.
const sales = `
WITH sold AS (
    SELECT gen_random_uuid() AS id, 'p' || lpad(i::text, 3, '0') AS sku, i % 7 + 1 AS units, 90 + i % 20 AS price,
           (date_trunc('day', now() AT TIME ZONE 'UTC') - make_interval(days => i % 3 + 1) + make_interval(secs => i * 300)) AT TIME ZONE 'UTC' AS at
    FROM generate_series(1, 250) AS i
    ORDER BY at
), ordered AS (
    INSERT INTO orders (id, client_id, idempotency_key, status, total, currency, created_at)
    SELECT id, id, 'k', 'confirmed', units * price, 'EUR', at FROM sold
), lines AS (
    INSERT INTO order_lines (order_id, sku, quantity, unit_price) SELECT id, sku, units, price FROM sold
)
INSERT INTO stock_movements (sku, kind, quantity, order_id, created_at)
SELECT sku, 'sale', -units, id, at FROM sold
UNION ALL
SELECT sku, 'cancel', units, id, at + interval '1 day' FROM sold WHERE units = 7`

// over is the first day that is not due.
const over = `((now() - interval '10 minutes') AT TIME ZONE 'UTC')::date`

// differences counts the products and days whose row is not the sum of the movements, computed without the code
// under test.
const differences = `
SELECT count(*)
FROM (SELECT (m.created_at AT TIME ZONE 'UTC')::date AS day, m.sku, -sum(m.quantity) AS units, -sum(m.quantity * l.unit_price) AS revenue
      FROM stock_movements m JOIN order_lines l USING (order_id, sku)
      WHERE (m.created_at AT TIME ZONE 'UTC')::date < ` + over + `
      GROUP BY 1, 2) AS want
FULL JOIN daily_sales AS have USING (day, sku)
WHERE want.units IS DISTINCT FROM have.units OR want.revenue IS DISTINCT FROM have.revenue`

func open(t *testing.T) *pgtest.Database {
	t.Helper()
	d := pgtest.New(t, "inventory", "locking/pglock")
	d.Exec(products)
	d.Exec(sales)
	return d
}

// due is how many days are due: three, and two within ten minutes after midnight.
func due(d *pgtest.Database) int {
	return int(d.Number(`SELECT ` + over + ` - (SELECT min(created_at AT TIME ZONE 'UTC') FROM stock_movements)::date`))
}

// roller is a server that rolls up, with a lock store of its own.
func roller(t *testing.T, d *pgtest.Database) rollup.Roller {
	t.Helper()
	locks, err := pglock.New(d.Pool, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locks.Close)
	return rollup.Roller{Pool: d.Pool, Locks: locks}
}

func wantSums(t *testing.T, d *pgtest.Database) {
	t.Helper()
	if n := d.Number(differences); n != 0 {
		t.Errorf("%d rows of daily_sales are not the sums of the movements", n)
	}
	if n := d.Number(`SELECT count(*) FROM daily_sales`); n < 250 {
		t.Errorf("%d rows of daily_sales: this shows nothing", n)
	}
}

func TestRun_AddsUpEachDayThatIsOverOnce(t *testing.T) {
	t.Parallel()
	d := open(t)
	r := roller(t, d)
	days, err := r.Run(t.Context())
	if err != nil || len(days) != due(d) || !slices.IsSortedFunc(days, time.Time.Compare) {
		t.Fatalf("%v, %v: want the days before today", days, err)
	}
	wantSums(t, d)
	if days, err := r.Run(t.Context()); err != nil || len(days) != 0 {
		t.Errorf("again: %v, %v", days, err)
	}
}

func TestRun_SkipsAtOnceWhatAnotherServerDoes(t *testing.T) {
	t.Parallel()
	d := open(t)
	holder, r := roller(t, d), roller(t, d)
	var first string
	err := d.Pool.QueryRow(t.Context(), `SELECT min(created_at AT TIME ZONE 'UTC')::date::text FROM stock_movements`).Scan(&first)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := holder.Locks.TryAcquire(t.Context(), "roll-up/"+first)
	if err != nil {
		t.Fatal(err)
	}
	if days, err := r.Run(t.Context()); !errors.Is(err, locking.ErrBusy) || days != nil {
		t.Errorf("got %v, %v, want ErrBusy", days, err)
	}
	if n := d.Number(`SELECT count(*) FROM roll_ups`); n != 0 {
		t.Error("the work was begun without the lock")
	}
	if err := holder.Locks.Release(t.Context(), lease); err != nil {
		t.Error(err)
	}
	if days, err := r.Run(t.Context()); err != nil || len(days) != due(d) {
		t.Errorf("got %v, %v", days, err)
	}
}

// granting grants to all, as a store that has lost its data does.
type granting struct{ locking.Store }

func (granting) TryAcquire(_ context.Context, keys ...string) (locking.Lease, error) {
	return locking.Lease{Keys: keys, Owner: "all", Fence: 1, Until: time.Now().Add(time.Minute)}, nil
}
func (granting) Release(context.Context, locking.Lease) error { return nil }

func TestRun_WithoutALockDoesEachChunkOnce(t *testing.T) {
	t.Parallel()
	d := open(t)
	var servers sync.WaitGroup
	for range 4 {
		servers.Go(func() {
			if _, err := (rollup.Roller{Pool: d.Pool, Locks: granting{}}).Run(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	servers.Wait()
	wantSums(t, d)
}

// A chunk that fails leaves the chunks before it, and the next run continues there.
func TestRun_ContinuesAfterAFailure(t *testing.T) {
	t.Parallel()
	d := open(t)
	r := roller(t, d)
	d.Exec(`ALTER TABLE daily_sales ADD CONSTRAINT half CHECK (sku < 'p150')`)
	if _, err := r.Run(t.Context()); err == nil {
		t.Fatal("want the error of the constraint")
	}
	if n := d.Number(`SELECT count(*) FROM roll_ups WHERE upto = 'p100' AND done_at IS NULL`); n != 1 {
		t.Error("want the first chunk of the first day done, and no other")
	}
	d.Exec(`ALTER TABLE daily_sales DROP CONSTRAINT half`)
	if days, err := r.Run(t.Context()); err != nil || len(days) != due(d) {
		t.Errorf("got %v, %v", days, err)
	}
	wantSums(t, d)
}
