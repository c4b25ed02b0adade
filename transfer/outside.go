// SPDX-License-Identifier: MIT

package transfer

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"shop/locking"
	"shop/locking/idempotency/pgtx"
)

// outside moves money with work between the read and the write that does not belong in a
// transaction, such as a request to a credit bureau or the rendering of a receipt.
//
//	BEGIN, guard and read both rows, COMMIT              the rows have stored the fence
//	the work, and the decision                           no row locked, no transaction open
//	BEGIN, write both fences, key, balances …, COMMIT    one message, detached
//
// etcd-fence-only and etcd-unfenced are this function. They differ in one predicate of
// write. Neither holds a row lock from the read to the write, and neither compares versions.
// So nothing but that predicate protects the money from a late holder.
//
// The guard at the read refuses a holder that is late before it reads. A guard at the write
// alone would lose updates: A reads 100, B reads 100, A writes with fence 5, B writes with
// fence 6.
func (s *Service) outside(ctx context.Context, o *operation, write string) (Reply, error) {
	o.Deferred = true
	return s.underLock(ctx, s.cfg.Locks, o.lockNames(), func(ctx context.Context, l locking.Lease) (Reply, error) {
		reply, err := s.transact(ctx, o, func(ctx context.Context, a *attempt) (Reply, error) {
			if err := a.readOutside(ctx, l.Fence); err != nil {
				return Reply{}, err
			}
			// The work belongs here, outside of a transaction. However long it takes, it uses what was read.
			if err := a.writeOutside(ctx, write); err != nil {
				return Reply{}, err
			}
			return a.decideNow(ctx)
		})
		if isMiss(err) && !errors.Is(err, locking.ErrOutcomeUnknown) {
			_, err = s.transact(ctx, o, func(ctx context.Context, a *attempt) (Reply, error) {
				a.fence, a.epoch = l.Fence, s.cfg.Epoch
				return Reply{}, a.explainMiss(ctx, err)
			})
		}
		return reply, err
	})
}

// readOutside commits the fence with the read. A COMMIT without an answer does no harm here:
// it moved no money, and the same fence passes again.
func (a *attempt) readOutside(ctx context.Context, fence locking.Fence) error {
	if err := a.Begin(ctx, pgtx.BeginReadCommitted); err != nil {
		return err
	}
	a.guard(fence)
	a.Queue("commit")
	if err := a.guarded(ctx); err != nil {
		return err
	}
	_, _, err := a.findAccounts(ctx)
	return err
}

// writeOutside queues the beginning of the second transaction: write for each account, in id
// order. The decision queues the rest, and COMMIT.
//
// The transaction is one message, and a WHERE that matches no row is not an error in SQL. The
// division by zero makes it one (isMiss), which aborts the transaction, COMMIT included.
//
// The statement that ends a hold needs a message of its own: the decision depends on its result.
func (a *attempt) writeOutside(ctx context.Context, write string) error {
	if err := a.Begin(ctx, pgtx.BeginReadCommitted); err != nil {
		return err
	}
	for _, id := range a.pair() {
		a.Queue(write, id, int64(a.fence), a.epoch)
	}
	a.Queue(`
		SELECT 1 / (count(*) = 2)::int
		FROM accounts
		WHERE id = ANY($1)
		AND fence = $2 AND fence_epoch = $3`, a.pair(), int64(a.fence), a.epoch)
	a.KeyHere()
	if a.change == nil {
		return nil
	}
	a.endHold(*a.change)
	return a.Flush(ctx)
}

// isMiss reports whether a write did not find both rows under its fence.
func isMiss(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "22012" // division_by_zero
}
