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
// to sweep, and the other way round. A hold that cannot be had (busy, stale) is left
// for the next time, and Sweep ends when a server is away. The error names the
// first holds that were left, and counts them all.
func (s *Service) Sweep(ctx context.Context) (swept int, err error) {
	var (
		at   time.Time // the last one seen, so that those left behind are not seen again
		id   uuid.UUID
		left leftBehind
	)
	for {
		due, err := s.due(ctx, at, id)
		if err != nil {
			return swept, errors.Join(left.err(), err)
		}
		for _, tr := range due {
			at, id = *tr.ExpiresAt, tr.ID
			expired, err := s.expire(ctx, tr)
			if expired {
				swept++
			}
			if err != nil {
				left.add(tr.ID, err)
			}
			if ctx.Err() != nil || isGone(err) {
				return swept, left.err()
			}
		}
		if len(due) < sweepPage {
			return swept, left.err()
		}
	}
}

// leftBehind are holds that could not be ended: ten thousand of them may have ten
// thousand times the same reason.
type leftBehind struct {
	first []error
	n     int
}

func (l *leftBehind) add(id uuid.UUID, err error) {
	if l.n++; l.n <= 3 {
		l.first = append(l.first, fmt.Errorf("transfer: sweep %s: %w", id, err))
	}
}

func (l *leftBehind) err() error {
	if more := l.n - len(l.first); more > 0 {
		return fmt.Errorf("%w\nand %d more holds", errors.Join(l.first...), more)
	}
	return errors.Join(l.first...)
}

// due lists holds whose time is over, by its end. Without a lock: which of them are
// still reserved is decided under theirs.
func (s *Service) due(ctx context.Context, at time.Time, id uuid.UUID) (list []Transfer, err error) {
	ctx, cancel := answerIn(ctx)
	defer cancel()
	conn, err := s.connection(ctx)
	if err != nil {
		return nil, fmt.Errorf("transfer: list expired holds: %w", err)
	}
	defer conn.Release()
	rows, _ := conn.Query(ctx, selectTransfer+`
		WHERE state = 'reserved'
		AND expires_at <= clock_timestamp()
		AND (expires_at, id) > ($1, $2)
		ORDER BY expires_at, id
		LIMIT $3`, at, id, sweepPage)
	if list, err = pgx.CollectRows(rows, toTransfer); err != nil {
		return nil, fmt.Errorf("transfer: list expired holds: %w", endOf(ctx, err))
	}
	return list, nil
}
