package transfer

import (
	"context"
	"slices"

	"shop/locking"
)

// etcdFenceOnly: the same fence, for work that leaves the transaction between
// its read and its write (asks a credit bureau, renders a receipt). Right, if
// the guard stands at both.
//
// The guard at the read tells the account that there is a newer holder, so that
// whoever was late before can no longer write over what is read now. The guard at
// the write finds out whether there has been a newer one since. Between them no row is
// locked and no transaction open, for as long as the lease lasts.
//
// A guard at the write alone would lose updates: A reads 100, B reads 100, A
// writes with fence 5, B writes with fence 6. And the guards notice only those who
// bring a fence: a writer that merely locks rows (row, serializable: one half of
// the servers, while a change of the strategy is rolled out) may come between. So
// the write also looks whether the version is still the one that was read.
func (s *Service) etcdFenceOnly(ctx context.Context, j *job) (Reply, error) {
	return s.underLock(ctx, j, s.locks, j.lockNames(), func(ctx context.Context, l locking.Lease) (Reply, error) {
		return s.transact(ctx, j, func(ctx context.Context, t *tx) (Reply, error) {
			t.fence, t.source = l.Fence, s.source
			if err := s.guardTheRead(ctx, t, j); err != nil {
				return Reply{}, err
			}
			read := slices.Clone(t.accounts)
			// Here the work leaves the transaction. What it decides with was read, however long it takes.
			if err := s.guardTheWrite(ctx, t, j); err != nil {
				return Reply{}, err
			}
			if !slices.EqualFunc(read, t.accounts, func(a, b account) bool { return a.version == b.version }) {
				return Reply{}, errConflict
			}
			t.accounts = read
			return j.finish(ctx, t)
		})
	})
}

// guardTheRead commits the fence with the read. A COMMIT without answer needs no
// care here: it moved no money, and the same fence passes again.
func (s *Service) guardTheRead(ctx context.Context, t *tx, j *job) error {
	if err := t.begin(ctx, "begin"); err != nil {
		return err
	}
	t.guard(j)
	t.exec("commit")
	if err := t.guarded(ctx); err != nil {
		return err
	}
	_, _, err := j.known(t)
	return s.mayBeRefused(ctx, t, j, err)
}

// guardTheWrite begins the transaction of the write, and locks both rows.
func (s *Service) guardTheWrite(ctx context.Context, t *tx, j *job) error {
	if err := t.begin(ctx, "begin"); err != nil {
		return err
	}
	t.guard(j)
	if j.change != nil {
		t.change(j.id, *j.change)
	}
	t.accounts = t.accounts[:0]
	if err := t.flush(ctx); err != nil {
		return err
	}
	_, _, err := j.known(t)
	return s.mayBeRefused(ctx, t, j, err)
}
