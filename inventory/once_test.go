// SPDX-License-Identifier: MIT

package inventory_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"shop/inventory"
)

// Whatever the code does, the tables refuse a second effect of an order.
func TestTables_RefuseASecondEffectOfAnOrder(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	s.stock("A", 5)
	buyer := newRequest()
	id := s.ordered(buyer, one("A")...)
	if _, err := s.Cancel(t.Context(), requestBy(buyer.Client, "cancel"), id); err != nil {
		t.Fatal(err)
	}
	for _, second := range []struct{ name, constraint, sql string }{
		{"sale", "stock_movements_once", `INSERT INTO stock_movements (sku, kind, quantity, order_id) VALUES ('A', 'sale', -1, $1)`},
		{"cancel", "stock_movements_once", `INSERT INTO stock_movements (sku, kind, quantity, order_id) VALUES ('A', 'cancel', 1, $1)`},
		{"line", "order_lines_pkey", `INSERT INTO order_lines (order_id, sku, quantity, unit_price) VALUES ($1, 'A', 1, 100)`},
		{"order", "orders_pkey", `INSERT INTO orders SELECT * FROM orders WHERE id = $1`},
	} {
		_, err := s.Pool.Exec(t.Context(), second.sql, id)
		if pg := new(pgconn.PgError); !errors.As(err, &pg) || pg.Code != "23505" || pg.ConstraintName != second.constraint {
			t.Errorf("a second %s: %v, want 23505 of %s", second.name, err, second.constraint)
		}
	}
	s.mustHold()
}
