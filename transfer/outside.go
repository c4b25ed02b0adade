package transfer

import (
	"context"

	"shop/locking"
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
func (s *Service) outside(ctx context.Context, j *job, write string) (Reply, error) {
	return s.underLock(ctx, j, s.locks, j.lockNames(), func(ctx context.Context, l locking.Lease) (Reply, error) {
		return s.transact(ctx, j, func(ctx context.Context, t *tx) (Reply, error) {
			t.fence, t.source = l.Fence, s.source
			if err := t.readOutside(ctx, j); err != nil {
				return Reply{}, err
			}
			// Here the work leaves the transaction. It decides with what was read, however long it takes.
			if err := t.writeOutside(ctx, j, write); err != nil {
				return Reply{}, err
			}
			return j.finish(ctx, t)
		})
	})
}

// readOutside commits the fence with the read. A COMMIT without answer needs no
// care here: it moved no money, and the same fence passes again.
func (t *tx) readOutside(ctx context.Context, j *job) error {
	if err := t.begin(ctx, "begin"); err != nil {
		return err
	}
	t.guard(j)
	t.exec("commit")
	if err := t.guarded(ctx); err != nil {
		return err
	}
	_, _, err := j.known(t)
	return err
}

// writeOutside queues the head of the write's transaction: write for each
// account, in id order. The decision queues the rest, and COMMIT, behind it.
//
// All of it is one message, and a WHERE that finds no row is no error in SQL. The
// division by zero makes it one: it ends the transaction, COMMIT included.
//
// The end of a hold is tried in a message of its own: the decision depends on it.
func (t *tx) writeOutside(ctx context.Context, j *job, write string) error {
	if err := t.begin(ctx, "begin"); err != nil {
		return err
	}
	for _, id := range j.pair() {
		t.exec(write, id, int64(t.fence), t.source)
	}
	t.exec(`
		SELECT 1 / (count(*) = 2)::int
		FROM accounts
		WHERE id = ANY($1)
		AND fence = $2 AND fence_source = $3`, j.pair(), int64(t.fence), t.source)
	if j.change == nil {
		return nil
	}
	t.change(j.id, *j.change)
	return t.flush(ctx)
}
