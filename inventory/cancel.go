package inventory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// cancelling names Cancel where purchases name their strategy.
const cancelling = "cancel"

// Cancel gives an order's stock back, exactly once. A second cancel under
// another key gets ErrAlreadyCancelled as its stored answer; somebody else's
// order is ErrNotFound. It takes the same locks in the same order as a purchase, whatever
// the strategies around it do: products by sku, the order, the key.
func (s *Service) Cancel(ctx context.Context, req Request, id uuid.UUID) (Reply, error) {
	if err := checkRequest(req); err != nil {
		return Reply{}, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if reply, found, err := s.replay(ctx, req); found || err != nil {
		return reply, err
	}
	in := &intent{req: req, strategy: cancelling}
	return s.transact(ctx, in, begin, func(ctx context.Context, t *tx) (Reply, error) {
		order, now, err := t.lockOrder(ctx, req.Client, id)
		if err != nil {
			return Reply{}, err
		}
		if order.Status == Cancelled {
			return Reply{}, fmt.Errorf("%w: %s", ErrAlreadyCancelled, id)
		}
		order.Status, order.CancelledAt = Cancelled, &now
		reply, err := s.encode(order, nil)
		if err != nil {
			return Reply{}, fmt.Errorf("inventory: encode order: %w", err)
		}
		t.giveBack(in, id, reply)
		return reply, nil
	})
}

// lockOrder locks what a cancel writes, and then reads it.
func (t *tx) lockOrder(ctx context.Context, client, id uuid.UUID) (o Order, now time.Time, err error) {
	// The products first, as every purchase does. Which they are is known
	// without a lock: the lines of an order never change.
	t.exec(`
		SELECT p.sku
		FROM products p
		JOIN order_lines l ON l.sku = p.sku
		JOIN orders o ON o.id = l.order_id
		WHERE o.id = $1 AND o.client_id = $2
		ORDER BY p.sku
		FOR UPDATE OF p`, id, client)
	// Then the order. A statement after the wait, so that it sees who cancelled meanwhile.
	t.batch.Queue(`
		SELECT status, total, currency, created_at, now()
		FROM orders
		WHERE id = $1 AND client_id = $2
		FOR UPDATE`, id, client).Query(func(rows pgx.Rows) error {
		t.answered++
		_, err := pgx.ForEachRow(rows, []any{&o.Status, &o.Total, &o.Currency, &o.CreatedAt, &now}, func() error { return nil })
		return err
	})
	t.batch.Queue(`
		SELECT sku, quantity, unit_price
		FROM order_lines
		WHERE order_id = $1
		ORDER BY sku`, id).Query(func(rows pgx.Rows) (err error) {
		t.answered++
		o.Lines, err = pgx.CollectRows(rows, pgx.RowToStructByPos[OrderLine])
		return err
	})
	if _, err := t.guard(ctx); err != nil {
		return Order{}, now, err
	}
	if o.Status == "" {
		return Order{}, now, fmt.Errorf("%w: order %s", ErrNotFound, id)
	}
	o.ID, o.Client, o.CreatedAt = id, client, o.CreatedAt.UTC()
	return o, now.UTC(), nil
}

// giveBack queues the effect. Each of its parts alone would stop a second time:
// the status, the key, and the unique index over the movements.
func (t *tx) giveBack(in *intent, id uuid.UUID, reply Reply) {
	t.exec(`
		UPDATE products p
		SET stock = p.stock + l.quantity, version = p.version + 1
		FROM order_lines l
		WHERE l.order_id = $1 AND l.sku = p.sku`, id) // all locked before, so that its order does not matter
	t.storeReply(in, reply)
	t.exec(`
		UPDATE orders
		SET status = 'cancelled', cancelled_at = now()
		WHERE id = $1`, id)
	t.exec(`
		INSERT INTO stock_movements (sku, kind, quantity, order_id)
		SELECT sku, 'cancel', quantity, order_id
		FROM order_lines
		WHERE order_id = $1`, id)
}
