package transfer

import (
	"context"
	"fmt"

	"shop/locking"
	"shop/locking/idempotency/pgtx"
)

// A payer that is short gets expired money back dueMax holds at a time, at most
// dueRounds times in one request. After that the request is busy, and the next one
// with its key goes on where it ended.
const (
	dueMax    = 20
	dueRounds = 50
)

// dueError is a refusal that need not be: holds of the payer have expired, their
// money has not been given back yet, and it would do.
type dueError struct{ holds []Transfer }

func (e *dueError) Error() string { return fmt.Sprintf("transfer: %d expired holds", len(e.holds)) }

// short ends an attempt whose payer has too little. It refuses, unless expired
// holds of the payer cover what is missing. Their money is not simply counted as
// available: it comes back only when its hold is committed as
// expired, under the rows of that hold, so that a Post can never find it spent.
func (a *attempt) short(ctx context.Context, from *account, tr Transfer, available int64) (Reply, error) {
	refusal := &InsufficientFundsError{from.ID, tr.Amount, available}
	missing := tr.Amount - available
	if from.Held < missing {
		return a.s.refuse(tr, refusal)
	}
	due := pgtx.Query[Transfer](a.Tx, selectTransfer+`
		WHERE from_id = $1 AND state = 'reserved' AND expires_at <= clock_timestamp()
		ORDER BY expires_at
		LIMIT $2`, from.ID, dueMax)
	sum, err := pgtx.Select[int64](ctx, a.Tx, `
		SELECT COALESCE(sum(amount), 0)::bigint
		FROM transfers
		WHERE from_id = $1 AND state = 'reserved' AND expires_at <= clock_timestamp()`, from.ID)
	if err != nil {
		return Reply{}, err
	}
	if len(*due) == 0 || sum[0] < missing {
		return a.s.refuse(tr, refusal)
	}
	return Reply{}, &dueError{*due}
}

// runAfter runs an operation again when the payer's expired holds have given back
// their money, each in a transaction of its own, under its own two accounts.
func (s *Service) runAfter(ctx context.Context, o *operation, due *dueError) (Reply, error) {
	if o.rounds++; o.rounds > dueRounds {
		return Reply{}, fmt.Errorf("%w: gave %d expired holds of account %s back, and there are more", locking.ErrBusy, dueMax*dueRounds, o.from)
	}
	for _, tr := range due.holds {
		if _, err := s.expire(ctx, tr); err != nil {
			return Reply{}, fmt.Errorf("transfer: expire hold %s: %w", tr.ID, err)
		}
	}
	return s.method(s, ctx, o)
}
