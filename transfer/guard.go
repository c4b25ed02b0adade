package transfer

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/locking"
)

// guard queues the statement that this package is about, once for each account,
// in id order. It is four things in one:
//
//   - the fence check: the row takes no number lower than one it has seen, and
//     none of another counter. Equal passes, one holder may write several times;
//   - the row lock: whoever comes with a newer fence waits for our end, so that
//     nothing we write can land behind him;
//   - the read: RETURNING is the row as it is now, after the wait, under the lock;
//   - the news: our fence is written, and committed with what we do, so that
//     whoever was before us is refused from now on.
//
// It is the first statement. A read before it could be about the past. And it is
// two statements, not one with id = ANY($1), which promises no order.
//
// An account that nobody has fenced yet takes the source of the first who does.
func (t *tx) guard(j *job) {
	t.guards = true
	for _, id := range j.pair() {
		t.read(`
			UPDATE accounts
			SET fence = $2, fence_source = $3
			WHERE id = $1
			AND (fence_source = '' OR fence_source = $3 AND fence <= $2)
			RETURNING id, owner_id, currency, balance, held, version, clock_timestamp()`, id, int64(t.fence), t.source)
	}
}

// errMissed is a write that did not find both rows under its fence.
var errMissed = errors.New("transfer: the accounts carry another fence")

// explainMiss turns a missing row into why the guard refused it, if it did. An
// UPDATE that finds no row does not say: there is no such account, the fence is
// old, or it is of another epoch.
func (s *Service) explainMiss(ctx context.Context, t *tx, j *job, missed error) error {
	if !t.guards || !errors.Is(missed, ErrNotFound) && !errors.Is(missed, errMissed) {
		return missed
	}
	t.rollback(ctx)
	t.batch = &pgx.Batch{}
	var (
		accounts int
		refused  error
	)
	t.batch.Queue(`
		SELECT id, fence, fence_source
		FROM accounts
		WHERE id = ANY($1)
		ORDER BY id`, j.pair()).Query(func(rows pgx.Rows) error {
		t.answered++
		var (
			id     uuid.UUID
			fence  locking.Fence
			source string
		)
		_, err := pgx.ForEachRow(rows, []any{&id, &fence, &source}, func() error {
			accounts++
			switch {
			case refused != nil:
			case source != "" && source != t.source:
				refused = &SourceError{Account: id, Source: t.source, Seen: source}
			case fence > t.fence:
				refused = &StaleError{Account: id, Fence: t.fence, Seen: fence}
			}
			return nil
		})
		return err
	})
	if err := t.flush(ctx); err != nil {
		return err
	}
	switch {
	case refused == nil && accounts < 2:
		return missed
	case refused == nil: // a new epoch came between the miss and this look
		return errConflict
	case errors.Is(refused, locking.ErrStale):
		s.count(FenceRefused, j.strategy)
	}
	return refused
}
