// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"shop/locking"
)

// redisRow takes a Redis lock, and then runs SELECT … FOR UPDATE in one transaction. Right, and the default.
//
// The lock makes it fast, the database makes it right. Purchases of a hot product wait for the Redis lock without a
// database connection, and few reach the row at once. The row lock decides: if the Redis lock is lost, stolen or granted
// twice, two purchases meet at the row, and one waits there.
//
// So losing Redis costs speed, not stock: purchases go on with the row lock alone, a bounded number at once,
// until Redis answers again. The same happens if another holder keeps the lock for all of MaxWait.
func (s *Service) redisRow(ctx context.Context, p *purchase) (Reply, error) {
	reply, err := s.underLock(ctx, p, func(ctx context.Context) (Reply, error) {
		return s.row(ctx, p)
	})
	switch {
	case errors.Is(err, errNoLock):
		return s.rowAlone(ctx, p, err)
	case errors.Is(err, locking.ErrOutcomeUnknown) && ctx.Err() == nil:
		return s.row(ctx, p) // the lease was lost before the COMMIT was decided; row lock and key suffice to decide it
	}
	return reply, err
}

// errNoLock wraps the reason why a purchase has no lock: locking.ErrBusy if another holder kept it for all of MaxWait.
// Any other reason means that the lock store gave no answer, which is neither a grant nor "busy".
var errNoLock = errors.New("inventory: no lock")

// underLock runs fn while this purchase holds the locks of all its skus.
//
// The result of fn is authoritative. If the lease is lost while fn runs, fn's ctx is cancelled with the cause
// locking.ErrLost. Then fn either stops before its COMMIT, or commits and the purchase stands.
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
			s.breaker.Failed(noLease) // the store gave no answer until the caller's deadline
		}
		return Reply{}, context.Cause(ctx)
	case !busy:
		s.breaker.Failed(noLease)
	}
	return Reply{}, fmt.Errorf("%w: %w", errNoLock, noLease)
}
