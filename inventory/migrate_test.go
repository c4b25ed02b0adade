// SPDX-License-Identifier: MIT

package inventory_test

import (
	"bytes"
	"errors"
	"testing"

	"shop/inventory"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx/pgtest"
)

// The keys of a database of the first version move to the shared table. If a transfer has
// the same key, nothing is lost, and a retry does not order again.
func TestMigrate_MovesTheKeysAndKeepsThoseThatCollide(t *testing.T) {
	t.Parallel()
	for _, collides := range []bool{false, true} {
		s := openOn(pgtest.New(t), inventory.Config{})
		if err := inventory.Migrate(t.Context(), s.URL); err != nil {
			t.Fatal(err)
		}
		s.stock("A", 2)
		plain, shared := newRequest(), newRequest()
		first, err := s.Buy(t.Context(), plain, one("A"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Buy(t.Context(), shared, one("A")); err != nil {
			t.Fatal(err)
		}
		s.mustHold()
		s.Exec(`
			CREATE TABLE order_keys (LIKE idempotency_keys INCLUDING ALL);
			INSERT INTO order_keys SELECT * FROM idempotency_keys;
			DELETE FROM idempotency_keys;
			DROP VIEW products_with_slots;
			DROP TABLE stock_slots, daily_sales, roll_ups;
			DROP INDEX stock_movements_by_time;
			DROP TRIGGER count_purchased ON products;
			DROP FUNCTION count_purchased;
			DROP TABLE purchased;
			ALTER TABLE products DROP client_max;
			DELETE FROM inventory_goose_version WHERE version_id > 1`)
		if collides {
			s.Exec(`INSERT INTO idempotency_keys VALUES ($1, $2, $3, 201, 'a transfer')`, shared.Client, shared.Key, bytes.Repeat([]byte{1}, 32))
		}
		if err := inventory.Migrate(t.Context(), s.URL); err != nil {
			t.Fatal(err)
		}
		if again, err := s.Buy(t.Context(), plain, one("A")); err != nil || !again.Replayed || !bytes.Equal(again.Body, first.Body) {
			t.Errorf("%+v, %v: want the stored reply", again, err)
		}
		if _, err := s.Buy(t.Context(), shared, one("A")); errors.Is(err, idempotency.ErrKeyReused) != collides {
			t.Errorf("collision %v: %v", collides, err)
		}
		if left := s.left("A"); left != 0 {
			t.Errorf("%d left, want 0", left)
		}
		if collides {
			if n := s.Number(`SELECT count(*) FROM order_keys_collided WHERE key = $1 AND status = 200 AND body <> 'a transfer'`, shared.Key); n != 1 {
				t.Errorf("%d records of the order, want 1", n)
			}
		}
		if n := s.Number(`SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'order_keys'`); n != 0 {
			t.Error("order_keys still exists")
		}
	}
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Schema(t))
	for name, cfg := range map[string]inventory.Config{
		"no pool":            {},
		"no such strategy":   {Pool: pool, Strategy: "hope"},
		"no lock store":      {Pool: pool, Strategy: "redis+row"},
		"default needs both": {Pool: pool},
	} {
		if _, err := inventory.New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestAddProduct_OnceWithItsOpeningMovement(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	s.stock("A", 0)
	s.stock("B", 7)
	if created, err := s.AddProduct(t.Context(), inventory.Product{SKU: "B", Name: "other", Price: 1, Currency: "USD", Stock: 99}); created || err != nil {
		t.Errorf("created %v, %v: it exists", created, err)
	}
	if got := s.Number(`SELECT count(*) FROM stock_movements WHERE kind = 'opening'`); got != 2 {
		t.Errorf("%d opening movements, want 2", got)
	}
	for name, p := range map[string]inventory.Product{
		"no sku":         {Currency: "EUR"},
		"negative stock": {SKU: "X", Currency: "EUR", Stock: -1},
		"negative price": {SKU: "X", Currency: "EUR", Price: -1},
		"no currency":    {SKU: "X"},
	} {
		if _, err := s.AddProduct(t.Context(), p); !errors.Is(err, inventory.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	products, err := s.Products(t.Context())
	if err != nil || len(products) != 2 || products[1] != (inventory.Product{SKU: "B", Name: "B", Price: 100, Currency: "EUR", Stock: 7}) {
		t.Errorf("%+v, %v", products, err)
	}
	s.mustHold()
}

func report(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func TestProduct_UnknownNamesTheSKU(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	for _, sku := range []string{"Z", "", "\xff", "a\x00"} {
		var unknown *inventory.UnknownSKUError
		if _, err := s.Product(t.Context(), sku); !errors.As(err, &unknown) || unknown.SKU != sku {
			t.Errorf("%q: %v", sku, err)
		}
	}
}

// The version before added up products. A day that it left half done begins again, and sums that are done stay.
func TestMigrate_ADayThatIsHalfDoneBeginsAgain(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	if err := inventory.Migrate(t.Context(), d.URL); err != nil {
		t.Fatal(err)
	}
	d.Exec(`
		ALTER TABLE roll_ups DROP upto_time, DROP upto_id, ADD upto text COLLATE "C" NOT NULL DEFAULT '';
		ALTER TABLE daily_sales ALTER units TYPE bigint, ALTER revenue TYPE bigint;
		DROP VIEW products_with_slots;
		DROP TABLE stock_slots;
		DROP INDEX stock_movements_by_time;
		CREATE INDEX stock_movements_time ON stock_movements USING brin (created_at);
		DELETE FROM inventory_goose_version WHERE version_id > 5;
		INSERT INTO roll_ups (day, upto, done_at) VALUES ('2026-11-01', 'z', now()), ('2026-11-02', 'm', NULL);
		INSERT INTO daily_sales VALUES ('2026-11-01', 'a', 1, 100, 'EUR'), ('2026-11-02', 'a', 2, 200, 'EUR')`)
	if err := inventory.Migrate(t.Context(), d.URL); err != nil {
		t.Fatal(err)
	}
	if n := d.Number(`SELECT sum(revenue)::bigint FROM daily_sales`); n != 100 {
		t.Errorf("%d: want the sums of the day that is done, and no others", n)
	}
	if n := d.Number(`SELECT count(*) FROM roll_ups WHERE upto_time IS NULL AND upto_id = 0 AND (done_at IS NULL) = (day = '2026-11-02')`); n != 2 {
		t.Error("want one day that is done and one that begins again")
	}
}
