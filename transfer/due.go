// SPDX-License-Identifier: MIT

package transfer

import (
	"context"
	"fmt"

	"shop/locking"
	"shop/locking/idempotency/pgtx"
)

// If a payer is short of funds, a request ends its expired holds, dueMax at a time and at
// most dueRounds times. Then it returns ErrBusy, and a repetition ends the next ones.
const (
	dueMax    = 20
	dueRounds = 50
)

// dueError is returned in place of a refusal if the payer's expired holds, which are still
// reserved, cover what is missing. holds are the first dueMax of them.
type dueError struct{ holds []Transfer }

func (e *dueError) Error() string { return fmt.Sprintf("transfer: %d expired holds", len(e.holds)) }

// short ends an attempt whose payer is short of funds. It refuses, unless expired holds of
// the payer cover what is missing. Their money does not count as available before they are
// committed as expired, with the two accounts of each hold locked: otherwise a Post could
// find it spent.
func (a *attempt) short(ctx context.Context, from *account, tr Transfer, available int64) (Reply, error) {
	refusal := &InsufficientFundsError{from.ID, tr.Amount, available}
	missing := tr.Amount - available
	if from.Held < missing {
		return a.s.refuse(tr, refusal)
	}
	due := pgtx.QueueRows[Transfer](a.Tx, selectTransfer+`
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

// runAfter ends the payer's expired holds, each in a transaction of its own under the locks
// of its own two accounts. Then it runs the operation again.
func (s *Service) runAfter(ctx context.Context, o *operation, due *dueError) (Reply, error) {
	if o.rounds++; o.rounds > dueRounds {
		return Reply{}, locking.Like(locking.ErrBusy, fmt.Errorf("transfer: ended %d expired holds of account %s, and there are more", dueMax*dueRounds, o.from))
	}
	for _, tr := range due.holds {
		if _, err := s.expire(ctx, tr); err != nil {
			return Reply{}, fmt.Errorf("transfer: expire hold %s: %w", tr.ID, err)
		}
	}
	return s.method(s, ctx, o)
}
