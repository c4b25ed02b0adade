package inventory_test

import (
	"errors"
	"sync"
	"testing"

	"shop/inventory"
)

func TestMigrate_ByManyAtOnceAndAgain(t *testing.T) {
	t.Parallel()
	url := newSchema(t)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := inventory.Migrate(t.Context(), url); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := inventory.Migrate(t.Context(), url); err != nil {
		t.Error(err)
	}
	var versions int
	if err := newPool(t, url).QueryRow(t.Context(), `SELECT count(*) FROM inventory_goose_version WHERE version_id > 0`).Scan(&versions); err != nil || versions != 1 {
		t.Errorf("%d versions, %v, want 1", versions, err)
	}
}

func TestMigrate_WithoutASchemaSaysSo(t *testing.T) {
	t.Parallel()
	u := newSchema(t)
	if err := inventory.Migrate(t.Context(), u+"_nowhere"); err == nil {
		t.Error("migrated nothing, and said nothing")
	}
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	pool := newPool(t, newSchema(t))
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

func TestPoolConfig_BoundsEveryWaitOfEveryConnection(t *testing.T) {
	t.Parallel()
	pool := newPool(t, newSchema(t))
	for name, want := range map[string]string{
		"lock_timeout": "2s", "statement_timeout": "4s", "idle_in_transaction_session_timeout": "1500ms",
	} {
		var got string
		if err := pool.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, %v, want %q", name, got, err, want)
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
	if got := s.number(`SELECT count(*) FROM stock_movements WHERE kind = 'opening'`); got != 2 {
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
