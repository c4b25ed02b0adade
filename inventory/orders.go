// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/locking/idempotency/pgtx"
)

// Order finds an order of the client. For another client's order, as for one that does not exist, it returns ErrNotFound.
func (s *Service) Order(ctx context.Context, client, id uuid.UUID) (o Order, err error) {
	err = s.db.Read(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		o = Order{ID: id, Client: client}
		// One statement, so that order and lines come from one snapshot.
		rows, _ := conn.Query(ctx, `
			SELECT o.status, o.total, o.currency, o.created_at, o.cancelled_at, l.sku, l.quantity, l.unit_price
			FROM orders o
			JOIN order_lines l ON l.order_id = o.id
			WHERE o.id = $1 AND o.client_id = $2
			ORDER BY l.sku`, id, client)
		var l OrderLine
		_, err := pgx.ForEachRow(rows, []any{
			&o.Status, &o.Total, &o.Currency, &o.CreatedAt, &o.CancelledAt, &l.SKU, &l.Quantity, &l.UnitPrice,
		}, func() error {
			o.Lines = append(o.Lines, l)
			return nil
		})
		return err
	})
	switch {
	case err != nil:
		return Order{}, fmt.Errorf("inventory: order %s: %w", id, err)
	case len(o.Lines) == 0:
		return Order{}, fmt.Errorf("%w: order %s", ErrNotFound, id)
	}
	o.CreatedAt = o.CreatedAt.UTC()
	if o.CancelledAt != nil {
		*o.CancelledAt = o.CancelledAt.UTC()
	}
	return o, nil
}

// cancelling is the label of Cancel. Purchases are labelled with their strategy.
const cancelling = "cancel"

// Cancel returns an order's units to the stock, exactly once. A second cancel under
// another key gets ErrAlreadyCancelled as its stored reply; for another client's
// order Cancel returns ErrNotFound. It takes locks in the order of all
// strategies: products by sku, the order, the key. With redis-only,
// whose purchases take no row lock, it takes the Redis lock too.
func (s *Service) Cancel(ctx context.Context, req Request, id uuid.UUID) (Reply, error) {
	if err := req.Check(); err != nil {
		return Reply{}, err
	}
	ctx, cancel := s.db.Bound(ctx)
	defer cancel()
	if reply, found, err := s.db.Lookup(ctx, req); found || err != nil {
		return reply, err
	}
	if s.method.cancel != nil {
		return s.method.cancel(s, ctx, req, id)
	}
	return s.cancel(ctx, req, id)
}

// cancel is Cancel after the lookup found no reply for the key.
func (s *Service) cancel(ctx context.Context, req Request, id uuid.UUID) (Reply, error) {
	return s.run(ctx, &pgtx.Op{Request: req, Label: cancelling}, func(ctx context.Context, tx *pgtx.Tx) (Reply, error) {
		order, now, err := lockOrder(ctx, tx, req.Client, id)
		if err != nil {
			return Reply{}, err
		}
		if order.Status == Cancelled {
			return Reply{}, fmt.Errorf("%w: %s", ErrAlreadyCancelled, id)
		}
		order.Status, order.CancelledAt = Cancelled, &now
		giveBack(tx, id)
		return s.cfg.Encode(order, nil)
	})
}

// lockOrder locks what a cancel writes, and then reads it.
func lockOrder(ctx context.Context, tx *pgtx.Tx, client, id uuid.UUID) (o Order, now time.Time, err error) {
	// The products first, as in every purchase. They can be found without a lock,
	// because the lines of an order never change.
	tx.Queue(`
		SELECT
		FROM products p
		JOIN order_lines l ON l.sku = p.sku
		JOIN orders o ON o.id = l.order_id
		WHERE o.id = $1 AND o.client_id = $2
		ORDER BY p.sku
		FOR NO KEY UPDATE OF p`, id, client)
	// Then the order, in a statement after the wait, so that it sees a cancel committed during the wait.
	type row struct {
		Status    Status
		Total     int64
		Currency  string
		CreatedAt time.Time
		Now       time.Time
	}
	found := pgtx.QueueRows[row](tx, `
		SELECT status, total, currency, created_at, now()
		FROM orders
		WHERE id = $1 AND client_id = $2
		FOR UPDATE`, id, client)
	type line struct {
		OrderLine
		Full bool // no room in the stock for the units
	}
	lines, err := pgtx.Select[line](ctx, tx, `
		SELECT l.sku, l.quantity, l.unit_price, p.stock > 9223372036854775807 - l.quantity
		FROM order_lines l
		JOIN products_with_slots p ON p.sku = l.sku
		WHERE l.order_id = $1
		ORDER BY l.sku`, id)
	if err != nil {
		return Order{}, now, err
	}
	if err := tx.Step(ctx, AfterGuard); err != nil {
		return Order{}, now, err
	}
	if len(*found) == 0 {
		return Order{}, now, fmt.Errorf("%w: order %s", ErrNotFound, id)
	}
	r := (*found)[0]
	o = Order{ID: id, Client: client, Status: r.Status, Total: r.Total, Currency: r.Currency, CreatedAt: r.CreatedAt.UTC()}
	for _, l := range lines {
		if l.Full && r.Status != Cancelled {
			return Order{}, now, fmt.Errorf("%w: %q", ErrStockLimit, l.SKU)
		}
		o.Lines = append(o.Lines, l.OrderLine)
	}
	return o, r.Now.UTC(), nil
}

// giveBack queues the effect of a cancel. Any one of the status, the key, and the
// unique index on the movements would prevent a second effect.
func giveBack(tx *pgtx.Tx, id uuid.UUID) {
	tx.Queue(`
		UPDATE products p
		SET stock = p.stock + l.quantity, version = p.version + 1
		FROM order_lines l
		WHERE l.order_id = $1 AND l.sku = p.sku`, id) // all rows are locked already, so their order does not matter
	tx.Queue(`
		UPDATE orders
		SET status = 'cancelled', cancelled_at = now()
		WHERE id = $1`, id)
	tx.Queue(`
		INSERT INTO stock_movements (sku, kind, quantity, order_id)
		SELECT sku, 'cancel', quantity, order_id
		FROM order_lines
		WHERE order_id = $1`, id)
	tx.Queue(`
		UPDATE purchased b
		SET units = b.units - l.quantity
		FROM order_lines l
		JOIN orders o ON o.id = l.order_id
		WHERE o.id = $1 AND b.sku = l.sku AND b.client_id = o.client_id`, id) // no row for a product without a limit
}
