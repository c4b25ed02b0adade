package inventory

import (
	"context"
	"errors"

	"shop/locking"
)

// redisRow: a Redis lock, then SELECT … FOR UPDATE in one transaction. Right,
// and the default.
//
// The lock makes it fast, the database makes it right. Purchases of a hot product
// wait in Redis, without a connection, and few reach the row at once. The row lock
// decides: with the Redis lock lost, stolen or granted twice, two purchases meet
// at the row, and one waits there.
//
// So losing Redis costs speed, not stock: purchases go on with the row lock
// alone, a bounded number at once, until Redis answers again. Likewise where
// another holder keeps the lock for all of MaxWait: it may be stuck, or the key may
// have been set by hand, without a TTL, and the row lock can decide.
func (s *Service) redisRow(ctx context.Context, p *purchase) (Reply, error) {
	reply, err := s.underLock(ctx, p, func(ctx context.Context) (Reply, error) {
		return s.row(ctx, p)
	})
	var none *noLockError
	switch {
	case errors.As(err, &none):
		return s.rowAlone(ctx, p, none)
	case errors.Is(err, locking.ErrOutcomeUnknown) && ctx.Err() == nil:
		return s.row(ctx, p) // the lease ended before the COMMIT was decided: the row lock and the key can decide it alone
	}
	return reply, err
}

// rowAlone is row for as many purchases at once as the database can bear. The
// bound is one for all reasons: when the waiters of a flash sale time out together,
// a few of them go on, the others are busy, and half of the connections stay with
// the purchases that hold their locks, and with all other products.
func (s *Service) rowAlone(ctx context.Context, p *purchase, why *noLockError) (Reply, error) {
	leave, err := s.bypass.enter(ctx)
	if errors.Is(err, locking.ErrBusy) {
		s.count(Shed, p.Label)
	}
	if err != nil {
		return Reply{}, err
	}
	defer leave()
	if errors.Is(why, locking.ErrBusy) {
		s.count(Bypassed, p.Label)
		s.bypass.busy(p.skus, why)
	} else {
		s.count(Degraded, p.Label)
	}
	return s.row(ctx, p)
}
