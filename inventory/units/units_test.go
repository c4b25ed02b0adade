// SPDX-License-Identifier: MIT

package units_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"shop/inventory/units"
	"shop/locking"
	"shop/locking/idempotency/pgtx/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newUnits makes a product with n units.
func newUnits(t testing.TB, n int) *pgtest.Database {
	t.Helper()
	d := pgtest.New(t)
	d.Exec(units.Schema)
	d.Exec(`INSERT INTO stock_units (sku) SELECT 'apple' FROM generate_series(1, $1::integer)`, n)
	return d
}

func buy(ctx context.Context, d *pgtest.Database, n int) error {
	return pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error { return units.Take(ctx, tx, "apple", n, uuid.New()) })
}

func TestTake_SellsEachUnitOnceAndAllOfThem(t *testing.T) {
	t.Parallel()
	const stock, buyers = 100, 32
	d := newUnits(t, stock)
	var all sync.WaitGroup
	var sold, busy atomic.Int64
	for range buyers {
		all.Go(func() {
			for {
				switch err := buy(t.Context(), d, 1); {
				case err == nil:
					sold.Add(1)
				case errors.Is(err, locking.ErrBusy):
					busy.Add(1)
				case errors.Is(err, units.ErrSoldOut):
					return
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if n := d.Number(`SELECT count(DISTINCT order_id) FROM stock_units`); sold.Load() != stock || n != stock {
		t.Errorf("%d sold, %d orders, want %d", sold.Load(), n, stock)
	}
	t.Logf("%d sold to %d buyers, busy %d times", sold.Load(), buyers, busy.Load())
}

// The last unit is locked by a buyer who does not buy it.
func TestTake_LockedUnitsAreNotSold(t *testing.T) {
	t.Parallel()
	d := newUnits(t, 1)
	release := d.Hold(`SELECT FROM stock_units FOR UPDATE`)
	if err := buy(t.Context(), d, 1); !errors.Is(err, locking.ErrBusy) || errors.Is(err, units.ErrSoldOut) {
		t.Errorf("%v, want ErrBusy", err)
	}
	if err := buy(t.Context(), d, 2); !errors.Is(err, units.ErrSoldOut) {
		t.Errorf("more than there are: %v, want ErrSoldOut", err)
	}
	release()
	if err := buy(t.Context(), d, 1); err != nil {
		t.Errorf("after the roll-back: %v", err)
	}
	if err := buy(t.Context(), d, 1); !errors.Is(err, units.ErrSoldOut) {
		t.Errorf("after the sale: %v, want ErrSoldOut", err)
	}
}

func TestTake_AllOrNone(t *testing.T) {
	t.Parallel()
	d := newUnits(t, 3)
	for _, n := range []int{4, 0, -1} {
		if err := buy(t.Context(), d, n); err == nil {
			t.Errorf("%d units were sold", n)
		}
	}
	if n := d.Number(`SELECT count(*) FROM stock_units WHERE order_id IS NULL`); n != 3 {
		t.Errorf("%d units are open, want 3", n)
	}
	if err := buy(t.Context(), d, 3); err != nil {
		t.Error(err)
	}
}

// BenchmarkTake compares 32 buyers of one product: units of their own, and one row that each locks FOR UPDATE.
func BenchmarkTake(b *testing.B) {
	for name, sell := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"Units": func(ctx context.Context, tx pgx.Tx) error { return units.Take(ctx, tx, "apple", 1, uuid.New()) },
		"Row": func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SELECT FROM stock FOR UPDATE`); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `UPDATE stock SET n = n - 1`)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			d := newUnits(b, 0)
			d.Exec(`CREATE TABLE stock AS SELECT 100000000 AS n`)
			d.Exec(`INSERT INTO stock_units (sku) SELECT 'apple' FROM generate_series(1, $1::integer)`, b.N+32)
			d.Exec(`ANALYZE stock_units`)
			left := atomic.Int64{}
			left.Store(int64(b.N))
			var all sync.WaitGroup
			b.ResetTimer()
			for range 32 {
				all.Go(func() {
					for left.Add(-1) >= 0 {
						err := pgx.BeginFunc(b.Context(), d.Pool, func(tx pgx.Tx) error { return sell(b.Context(), tx) })
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}
