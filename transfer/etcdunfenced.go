package transfer

import (
	"context"

	"shop/locking"
)

// etcdUnfenced: naive under an etcd lock. Wrong, though etcd never grants twice.
//
// While the holder is in time, it holds. But a holder that is paused, or whose
// packet is late, or whose lease an operator revokes, writes after the next one
// has begun, and puts back what he changed. etcd cannot prevent it: the write
// goes past it. Nor can a look at the lease before the write: the pause comes
// between the look and the write.
func (s *Service) etcdUnfenced(ctx context.Context, j *job) (Reply, error) {
	return s.underLock(ctx, j, s.locks, j.lockNames(), func(ctx context.Context, _ locking.Lease) (Reply, error) {
		return s.naive(ctx, j)
	})
}
