// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"testing"
	"time"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"
	"shop/loadtest/internal/testproof"
	"shop/loadtest/soak"
	"shop/locking/idempotency/pgtx/pgtest"
)

// growing is a source with one gauge, which grows by this much with each reading.
func growing(by float64) soak.Source {
	n := 0.0
	return soak.Source{
		Gauges: []soak.Gauge{{Name: "readings"}},
		Read: func(context.Context) ([]float64, error) {
			n += by
			return []float64{n}, nil
		},
	}
}

// soakOf runs a soak of a few shifts of replicas that refuse everything.
func soakOf(t *testing.T, source soak.Source) loadtest.Report {
	t.Helper()
	proof := refusingProof(t, New().Safe("row", loadtest.Soak))
	proof.Load.Duration = 200 * time.Millisecond
	program := testproof.Program(t, "good")
	report, err := proof.Soak(t.Context(), loadtest.Soaking{
		For: time.Minute, Every: 50 * time.Millisecond,
		Program: func([]*loadtest.Trial) (loadtest.Program, error) { return program, nil },
		Sources: func(context.Context, []*loadtest.Trial) ([]soak.Source, error) { return []soak.Source{source}, nil },
		Fault:   func(int) fault.Fault { return fault.None{} },
		Shifts:  soak.FewestShifts,
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// Each shift must find what a proof of one scenario finds, in tables that the previous shift has emptied.
func TestSoak_AServiceThatRefusesEverythingIsNotSafeInAnyShift(t *testing.T) {
	report := soakOf(t, growing(0))
	if report.AsExpected || len(report.Scenarios) != soak.FewestShifts {
		t.Errorf("as expected: %v, %d shifts", report.AsExpected, len(report.Scenarios))
	}
	for _, r := range report.Scenarios {
		if r.Verdict != loadtest.Violated || r.Violations["S1"] != 0 || r.Violations["I-SOLD"] == 0 {
			t.Errorf("%s: %s, %v", r.Name(), r.Verdict, r.Violations)
		}
	}
	if len(report.Series) != 1 || report.Series[0].Verdict != soak.Bounded {
		t.Errorf("%+v", report.Series)
	}
}

func TestSoak_ASeriesThatGrowsIsFound(t *testing.T) {
	if report := soakOf(t, growing(1)); len(soak.Failed(report.Series)) != 1 || report.Series[0].Verdict != soak.Grows {
		t.Errorf("%+v", report.Series)
	}
}

func TestArchive_EmptiesTheTablesAndDatesKeysBack(t *testing.T) {
	db, err := loadtest.CreateDatabase(t.Context(), testbed.Env(t, "SHOP_POSTGRES_URL"), "soak_archive_"+time.Now().Format("150405_000000000"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Drop(context.Background()) })
	conn := testbed.Connect(t, db.URL)
	pgtest.Migrate(t, conn, "inventory")
	testbed.Exec(t, conn, `
INSERT INTO products (sku, name, price, currency, stock) VALUES ('a', 'a', 1, 'EUR', 1);
INSERT INTO stock_movements (sku, kind, quantity) VALUES ('a', 'opening', 1);
INSERT INTO idempotency_keys (client_id, key, fingerprint, status, body) VALUES (gen_random_uuid(), 'k', decode(repeat('00', 32), 'hex'), 201, '')`)
	if err := archive(t.Context(), &loadtest.Trial{Postgres: db.URL}); err != nil {
		t.Fatal(err)
	}
	var left, old int
	const sql = `SELECT (SELECT count(*) FROM products) + (SELECT count(*) FROM stock_movements),
		(SELECT count(*) FROM idempotency_keys WHERE created_at BETWEEN now() - interval '26 hours' AND now() - interval '24 hours')`
	if err := conn.QueryRow(t.Context(), sql).Scan(&left, &old); err != nil || left != 0 || old != 1 {
		t.Errorf("%d rows left, %d old keys, %v; want 0, 1", left, old, err)
	}
}
