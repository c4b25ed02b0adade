package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	switch {
	case errors.Is(err, errNoLock):
		return s.rowAlone(ctx, p, err)
	case errors.Is(err, locking.ErrOutcomeUnknown) && ctx.Err() == nil:
		return s.row(ctx, p) // the lease ended before the COMMIT was decided: the row lock and the key can decide it alone
	}
	return reply, err
}

// errNoLock marks why a purchase has no lock: locking.ErrBusy when another holder kept
// it for all of MaxWait; else the lock store gave no answer, which is neither a grant
// nor "busy".
var errNoLock = errors.New("inventory: no lock")

// underLock runs fn while the lock store grants all skus to this purchase.
//
// What fn returns is what happened. If the lease was lost meanwhile, fn's ctx
// ended with locking.ErrLost as its cause, and fn either stopped in time, or
// committed, and then the purchase stands.
func (s *Service) underLock(ctx context.Context, p *purchase, fn func(context.Context) (Reply, error)) (reply Reply, err error) {
	if err := s.breaker.Allow(ctx); err != nil {
		return Reply{}, fmt.Errorf("%w: %w", errNoLock, err)
	}
	keys := make([]string, len(p.skus)) // in the same order
	for i, sku := range p.skus {
		keys[i] = "product/" + sku
	}
	entered, start := false, time.Now()
	noLease := locking.Do(ctx, s.cfg.Locks, s.cfg.Lock, keys, func(ctx context.Context, _ locking.Lease) error {
		entered = true
		reply, err = fn(ctx)
		return err
	})
	if entered {
		return reply, err
	}
	busy := errors.Is(noLease, locking.ErrBusy)
	switch {
	case ctx.Err() != nil:
		if ctx.Err() == context.DeadlineExceeded && !busy && time.Since(start) > slotTimeout {
			s.breaker.Failed(noLease) // not one answer in all the time that the caller had
		}
		return Reply{}, context.Cause(ctx)
	case !busy:
		s.breaker.Failed(noLease)
	}
	return Reply{}, fmt.Errorf("%w: %w", errNoLock, noLease)
}
