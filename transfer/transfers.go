package transfer

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// selectTransfer has the columns in the order of Transfer's fields.
const selectTransfer = `
	SELECT id, client_id, from_id, to_id, amount, settled, currency, state, created_at, expires_at, ended_at
	FROM transfers`

func toTransfer(row pgx.CollectableRow) (Transfer, error) {
	tr, err := pgx.RowToStructByPos[Transfer](row)
	return tr.utc(), err
}

// Find returns a transfer of the client. Somebody else's is ErrNotFound, like one that is not.
func (s *Service) Find(ctx context.Context, client, id uuid.UUID) (tr Transfer, err error) {
	err = patiently(ctx, func() error {
		tr, err = s.find(ctx, client, id)
		return err
	})
	return tr, err
}

func (s *Service) find(ctx context.Context, client, id uuid.UUID) (Transfer, error) {
	ctx, cancel := answerIn(ctx)
	defer cancel()
	conn, err := s.connection(ctx)
	if err != nil {
		return Transfer{}, err
	}
	defer conn.Release()
	rows, _ := conn.Query(ctx, selectTransfer+` WHERE id = $1 AND client_id = $2`, id, client)
	tr, err := pgx.CollectExactlyOneRow(rows, toTransfer)
	switch {
	case err == nil:
		return tr, nil
	case errors.Is(err, pgx.ErrNoRows):
		return Transfer{}, fmt.Errorf("%w: transfer %s", ErrNotFound, id)
	case ctx.Err() != nil:
		return Transfer{}, context.Cause(ctx)
	case conn.Conn().IsClosed():
		return Transfer{}, fmt.Errorf("%w: %w", errLostConn, err)
	default:
		return Transfer{}, fmt.Errorf("transfer: transfer %s: %w", id, err)
	}
}
