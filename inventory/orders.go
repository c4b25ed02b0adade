package inventory

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Order finds an order of the client. Somebody else's is ErrNotFound, like one that is not.
func (s *Service) Order(ctx context.Context, client, id uuid.UUID) (Order, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	o := Order{ID: id, Client: client}
	// One statement, so that order and lines are of one snapshot.
	rows, _ := s.pool.Query(ctx, `
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
	o.CreatedAt = o.CreatedAt.UTC()
	if o.CancelledAt != nil {
		*o.CancelledAt = o.CancelledAt.UTC()
	}
	switch {
	case err != nil:
		return Order{}, fmt.Errorf("inventory: order %s: %w", id, err)
	case len(o.Lines) == 0:
		return Order{}, fmt.Errorf("%w: order %s", ErrNotFound, id)
	}
	return o, nil
}
