package transfer

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"shop/locking"
	"shop/locking/idempotency/pgtx"
)

// outside moves money with work between the read and the write that belongs into
// no transaction: a credit bureau is asked, a receipt is rendered.
//
//	BEGIN, guard and read both rows, COMMIT              the rows know the fence now
//	the work, and the decision                           no row locked, no transaction open
//	BEGIN, write both fences, key, balances …, COMMIT    one message, detached
//
// etcd-fence-only and etcd-unfenced are this function. They differ in write: one
// predicate. Neither holds a row lock from the read to the write, and neither
// compares versions, so that nothing but that predicate can save the money from
// a late holder.
//
// The guard at the read refuses a holder that was late before it. A guard at the
// write alone would lose updates: A reads 100, B reads 100, A writes with fence
// 5, B writes with fence 6.
func (s *Service) outside(ctx context.Context, o *operation, write string) (Reply, error) {
	o.Deferred = true
	return s.underLock(ctx, s.cfg.Locks, o.lockNames(), func(ctx context.Context, l locking.Lease) (Reply, error) {
		reply, err := s.transact(ctx, o, func(ctx context.Context, a *attempt) (Reply, error) {
			if err := a.readOutside(ctx, l.Fence); err != nil {
				return Reply{}, err
			}
			// Here the work leaves the transaction. It decides with what was read, however long it takes.
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

// readOutside commits the fence with the read. A COMMIT without answer needs no
// care here: it moved no money, and the same fence passes again.
func (a *attempt) readOutside(ctx context.Context, fence locking.Fence) error {
	if err := a.Begin(ctx, pgtx.BeginReadCommitted); err != nil {
		return err
	}
	a.guard(fence)
	a.Exec("commit")
	if err := a.guarded(ctx); err != nil {
		return err
	}
	_, _, err := a.findAccounts(ctx)
	return err
}

// writeOutside queues the head of the write's transaction: write for each
// account, in id order. The decision queues the rest, and COMMIT, behind it.
//
// All of it is one message, and a WHERE that finds no row is no error in SQL. The
// division by zero makes it one (isMiss): it ends the transaction, COMMIT included.
//
// The end of a hold is tried in a message of its own: the decision depends on it.
func (a *attempt) writeOutside(ctx context.Context, write string) error {
	if err := a.Begin(ctx, pgtx.BeginReadCommitted); err != nil {
		return err
	}
	for _, id := range a.pair() {
		a.Exec(write, id, int64(a.fence), a.epoch)
	}
	a.Exec(`
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

// isMiss reports a write that did not find both rows under its fence.
func isMiss(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "22012" // division_by_zero
}
