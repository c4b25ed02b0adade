package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// sweepPage is how many holds Sweep looks at before it looks again.
const sweepPage = 100

// Sweep gives back the money of all holds whose time is over, and says how many
// it ended. Each is a transaction of its own under its two accounts, with the
// locks of a Post and in their order: if a Post comes first, there is nothing left
// to sweep, and the other way round. A hold that cannot be had (busy, stale) is left for the next time.
func (s *Service) Sweep(ctx context.Context) (swept int, err error) {
	var (
		at time.Time // the last one seen, so that those left behind are not seen again
		id uuid.UUID
	)
	for {
		due, pageErr := s.due(ctx, at, id)
		if pageErr != nil {
			return swept, errors.Join(err, pageErr)
		}
		for _, tr := range due {
			at, id = *tr.ExpiresAt, tr.ID
			expired, holdErr := s.expire(ctx, tr)
			if expired {
				swept++
			}
			if holdErr != nil {
				err = errors.Join(err, fmt.Errorf("transfer: sweep %s: %w", tr.ID, holdErr))
			}
			if ctx.Err() != nil {
				return swept, err
			}
		}
		if len(due) < sweepPage {
			return swept, err
		}
	}
}

// due lists holds whose time is over, by its end. Without a lock: which of them are
// still reserved is decided under theirs.
func (s *Service) due(ctx context.Context, at time.Time, id uuid.UUID) (list []Transfer, err error) {
	rows, _ := s.pool.Query(ctx, selectTransfer+`
		WHERE state = 'reserved'
		AND expires_at <= clock_timestamp()
		AND (expires_at, id) > ($1, $2)
		ORDER BY expires_at, id
		LIMIT $3`, at, id, sweepPage)
	if list, err = pgx.CollectRows(rows, toTransfer); err != nil {
		return nil, fmt.Errorf("transfer: list expired holds: %w", err)
	}
	return list, nil
}
