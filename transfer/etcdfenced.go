package transfer

import (
	"context"
	"errors"

	"shop/locking"
)

// etcdFenced: an etcd lock on both accounts, and a guard in front of the
// transaction. Right, and the default.
//
// The lock makes it fast: who waits for a hot account waits in etcd's queue,
// first come, first served, without a connection to PostgreSQL. The guard makes it
// right: with the lock lost, revoked or granted to the next one, the row
// refuses the fence of the last one, and until it has seen the next one, being
// locked, it makes him wait.
//
// Losing etcd costs transfers, not money: none begins without a lease.
func (s *Service) etcdFenced(ctx context.Context, j *job) (Reply, error) {
	reply, err := s.underFence(ctx, j)
	if j.unknown && errors.Is(err, locking.ErrOutcomeUnknown) && ctx.Err() == nil {
		return s.underFence(ctx, j) // the lease ended before the COMMIT was decided: the next one, and its newer fence, may
	}
	return reply, err
}

func (s *Service) underFence(ctx context.Context, j *job) (Reply, error) {
	return s.underLock(ctx, j, s.locks, j.lockNames(), func(ctx context.Context, l locking.Lease) (Reply, error) {
		return s.transact(ctx, j, func(ctx context.Context, t *tx) (Reply, error) {
			t.fence, t.source = l.Fence, s.source
			if err := t.begin(ctx, "begin"); err != nil {
				return Reply{}, err
			}
			t.guard(j)
			return t.rest(ctx, j)
		})
	})
}
