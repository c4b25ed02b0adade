package transfer

import (
	"context"
	"errors"
	"fmt"

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
	for _, id := range j.pair() {
		t.read(`
			UPDATE accounts
			SET fence = $2, fence_source = $3
			WHERE id = $1
			AND (fence_source = '' OR fence_source = $3 AND fence <= $2)
			RETURNING id, owner_id, currency, balance, held, clock_timestamp()`, id, int64(t.fence), t.source)
	}
}

// refused turns "an account is missing" into why the guard refused it, if it
// did. An UPDATE that finds no row does not say: there is no such account, the
// fence is old, or it is another counter's.
func (s *Service) refused(ctx context.Context, t *tx, j *job, err error) error {
	if len(t.accounts) == 2 || err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	type row struct {
		ID     uuid.UUID
		Fence  int64
		Source string
	}
	var rows []row
	t.batch = &pgx.Batch{}
	t.batch.Queue(`
		SELECT id, fence, fence_source
		FROM accounts
		WHERE id = ANY($1)
		ORDER BY id`, j.pair()).Query(func(found pgx.Rows) (err error) {
		t.answered++
		rows, err = pgx.CollectRows(found, pgx.RowToStructByPos[row])
		return err
	})
	if flushErr := t.flush(ctx); flushErr != nil {
		return flushErr
	}
	for _, r := range rows {
		switch {
		case find(t.accounts, r.ID) != nil: // this one passed
		case r.Source != t.source:
			return &SourceError{Account: r.ID, Source: t.source, Seen: r.Source}
		default:
			s.count(FenceRefused, j.strategy)
			return &StaleError{Account: r.ID, Fence: t.fence, Seen: locking.Fence(r.Fence)}
		}
	}
	if err == nil {
		err = fmt.Errorf("%w: account %s or %s", ErrNotFound, j.from, j.to)
	}
	return err
}
