// SPDX-License-Identifier: MIT

package rollup_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"shop/inventory/rollup"
	"shop/locking"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/pglock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const products = `
INSERT INTO products (sku, name, price, currency, stock)
SELECT 'p' || lpad(i::text, 3, '0'), 'p', 100, 'EUR', 1000 FROM generate_series(1, 250) AS i`

// inPieces is the number of movements of a transaction. Each day of sales has more than 80.
const inPieces = 20

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
	locks, err := pglock.New(d.Pool, time.Minute, pglock.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locks.Close)
	return rollup.Roller{Pool: d.Pool, Locks: locks}.InPieces(inPieces)
}

// sell records a sale of one unit at a time and a price.
func sell(d *pgtest.Database, sku, at string, price int64) {
	d.T.Helper()
	d.Exec(`
		WITH ordered AS (
			INSERT INTO orders (id, client_id, idempotency_key, status, total, currency, created_at)
			VALUES (gen_random_uuid(), gen_random_uuid(), 'k', 'confirmed', $2, 'EUR', `+at+`)
			RETURNING id
		), lines AS (
			INSERT INTO order_lines (order_id, sku, quantity, unit_price) SELECT id, $1, 1, $2 FROM ordered
		)
		INSERT INTO stock_movements (sku, kind, quantity, order_id, created_at) SELECT $1, 'sale', -1, id, `+at+` FROM ordered`, sku, price)
}

// daysAgo is the first moment of a day in UTC, or a time after it.
func daysAgo(n int, later string) string {
	return fmt.Sprintf(`((((now() - interval '10 minutes') AT TIME ZONE 'UTC')::date - %d + interval '%s') AT TIME ZONE 'UTC')`, n, later)
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

func TestRun_WithoutALockAddsEachMovementOnce(t *testing.T) {
	t.Parallel()
	d := open(t)
	var servers sync.WaitGroup
	for range 4 {
		servers.Go(func() {
			if _, err := (rollup.Roller{Pool: d.Pool, Locks: granting{}}).InPieces(inPieces).Run(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	servers.Wait()
	wantSums(t, d)
}

// A piece that fails leaves the pieces before it, and the next run continues there.
func TestRun_ContinuesAfterAFailure(t *testing.T) {
	t.Parallel()
	d := open(t)
	r := roller(t, d)
	d.Exec(`ALTER TABLE daily_sales ADD CONSTRAINT half CHECK (sku < 'p150')`)
	if _, err := r.Run(t.Context()); err == nil {
		t.Fatal("want the error of the constraint")
	}
	if n := d.Number(`SELECT count(*) FROM roll_ups WHERE upto_id > 0 AND done_at IS NULL`); n == 0 {
		t.Error("want a day that is half done")
	}
	d.Exec(`ALTER TABLE daily_sales DROP CONSTRAINT half`)
	if days, err := r.Run(t.Context()); err != nil || len(days) != due(d) {
		t.Errorf("got %v, %v", days, err)
	}
	wantSums(t, d)
}

// The connection is lost at the end of each third piece, for a while: its transaction is rolled back.
func TestRun_ContinuesAfterALostConnection(t *testing.T) {
	t.Parallel()
	d := open(t)
	r := roller(t, d)
	d.Exec(`CREATE SEQUENCE pieces; ALTER SEQUENCE pieces OWNED BY roll_ups.upto_id`)
	d.Exec(`CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF nextval('pieces') % 3 = 0 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
		RETURN NEW;
	END $$`)
	d.Exec(`CREATE TRIGGER lose AFTER UPDATE ON roll_ups FOR EACH ROW EXECUTE FUNCTION lose()`)
	lost := 0
	for ; lost < 100; lost++ {
		if _, err := r.Run(t.Context()); err == nil {
			break
		}
	}
	if lost < 3 || lost == 100 {
		t.Errorf("%d runs lost their connection: this shows nothing", lost)
	}
	wantSums(t, d)
}

// A product cannot be divided, but its sales can. The trigger counts the transactions.
func TestRun_DividesTheSalesOfOneProduct(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.Exec(`UPDATE order_lines SET sku = 'p001'; UPDATE stock_movements SET sku = 'p001', created_at = ` + daysAgo(2, "5 hours"))
	d.Exec(`CREATE SEQUENCE pieces; ALTER SEQUENCE pieces OWNED BY roll_ups.upto_id`)
	d.Exec(`CREATE FUNCTION count_piece() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('pieces'); RETURN NEW; END $$`)
	d.Exec(`CREATE TRIGGER count_piece AFTER UPDATE ON roll_ups FOR EACH ROW EXECUTE FUNCTION count_piece()`)
	if _, err := roller(t, d).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	movements := d.Number(`SELECT count(*) FROM stock_movements`)
	if n := d.Number(`SELECT last_value FROM pieces`); n < movements/inPieces {
		t.Errorf("%d movements of one product and one moment were added in %d transactions, want %d in each", movements, n, inPieces)
	}
	if n := d.Number(differences); n != 0 {
		t.Errorf("%d rows of daily_sales are not the sums of the movements", n)
	}
}

func TestRun_ADayThatFailsDoesNotStopTheLaterDays(t *testing.T) {
	t.Parallel()
	d := open(t)
	r := roller(t, d)
	d.Exec(`ALTER TABLE daily_sales ADD CONSTRAINT bad CHECK (day <> ` + daysAgo(3, "0") + `::date) NOT VALID`)
	days, err := r.Run(t.Context())
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.ConstraintName != "bad" || len(days) != due(d)-1 {
		t.Errorf("%v, %v: want the error of one day, and the other days", days, err)
	}
	d.Exec(`ALTER TABLE daily_sales DROP CONSTRAINT bad`)
	if days, err := r.Run(t.Context()); err != nil || len(days) != 1 {
		t.Errorf("%v, %v: want the day that failed", days, err)
	}
	wantSums(t, d)
}

// One error for each of many days would fill the log.
func TestRun_NamesOnlyTheFirstDaysThatFail(t *testing.T) {
	t.Parallel()
	d := open(t)
	sell(d, "p001", daysAgo(30, "1 hour"), 100)
	d.Exec(`ALTER TABLE roll_ups ADD CONSTRAINT bad CHECK (done_at IS NULL)`)
	_, err := roller(t, d).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "and 27 more days") {
		t.Errorf("%v, want three errors and a number", err)
	}
}

func TestRun_RevenueBeyondBigint(t *testing.T) {
	t.Parallel()
	d := open(t)
	for range 3 {
		sell(d, "p001", daysAgo(2, "5 hours"), 5e18)
	}
	if days, err := roller(t, d).Run(t.Context()); err != nil || len(days) != due(d) {
		t.Errorf("%v, %v", days, err)
	}
	wantSums(t, d)
}

// A server that stops answering does not enforce its own timeouts. The batch waits for the roll-up.
func TestRun_OnASilentServerIsBounded(t *testing.T) {
	t.Parallel()
	d := open(t)
	r := roller(t, d)
	var sent *pgtest.Statements
	r.Pool, sent = d.Recording()
	if _, err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := sent.All("")
	if len(all) < 30 {
		t.Errorf("%d statements: this shows nothing", len(all))
	}
	for _, s := range all {
		if !s.Bounded {
			t.Errorf("sent without a deadline: %s", s.SQL)
		}
	}
}

// Whatever else is in the tables: with a part of a day that grows with them, a day of millions is never done.
func TestRun_APieceReadsNoMoreThanItsRows(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.Exec(`UPDATE stock_movements SET created_at = ` + daysAgo(2, "5 hours"))
	r := roller(t, d)
	var sent *pgtest.Statements
	r.Pool, sent = d.Recording()
	if _, err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.Exec(`DELETE FROM daily_sales; UPDATE roll_ups SET upto_time = NULL, upto_id = 0, done_at = NULL`)
	pieces := sent.All("UPDATE roll_ups")
	if len(pieces) < 285/inPieces {
		t.Errorf("%d pieces: this shows nothing", len(pieces))
	}
	for _, s := range pieces {
		if n := d.RowsRead(s); n > 10*inPieces {
			t.Errorf("a piece of %d movements read %d rows", inPieces, n)
		}
	}
}
