// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"shop/inventory"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/transfer"
	"shop/wallet"
	"shop/wallet/mongotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each command finds tables that are right: an audit that ends with findings would measure something else.
func TestSeed_EveryInvariantHolds(t *testing.T) {
	t.Parallel()
	const rows = 2000
	d := pgtest.New(t, "inventory", "transfer", "locking/pglock", "cmd/shop/api")
	conn, err := pgx.Connect(t.Context(), d.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	db, _ := mongotest.Database(t, os.Getenv("SHOP_MONGO_URL"))
	if err := wallet.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if err := seed(t.Context(), conn, db, rows); err != nil {
		t.Fatal(err)
	}
	audits := map[string]map[string]int64{}
	for name, audit := range map[string]func() (map[string]int64, error){
		"inventory": func() (map[string]int64, error) { return inventory.Audit(t.Context(), d.Pool) },
		"transfer":  func() (map[string]int64, error) { return transfer.Audit(t.Context(), d.Pool) },
		"wallet":    func() (map[string]int64, error) { return wallet.Audit(t.Context(), db) },
	} {
		if audits[name], err = audit(); err != nil {
			t.Fatal(err)
		}
		for invariant, broken := range audits[name] {
			if broken != 0 {
				t.Errorf("%s: %d violations of %s", name, broken, invariant)
			}
		}
	}
	for table, want := range map[string]int64{"orders": rows, "accounts": rows, "transfers": rows, "ledger_entries": 2 * rows, "clients": rows} {
		if n := d.Number(`SELECT count(*) FROM ` + table); n != want {
			t.Errorf("%d rows of %s, want %d", n, table, want)
		}
	}
}
