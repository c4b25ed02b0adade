package transfer

import (
	"context"
	"errors"

	"shop/locking"
)

// etcdFenced: an etcd lock on both accounts, and a guard in front of the
// transaction. Right, and the default.
//
// The lock makes it fast: a request for a hot account waits in etcd's queue,
// first come, first served, without a connection to PostgreSQL. The guard makes it
// right: if the lock is lost, revoked, or granted to the next holder, the row
// refuses the fence of the old holder; until the row has seen the newer fence, it
// is locked, and the newer holder waits.
//
// Losing etcd costs transfers, not money: none begins without a lease.
func (s *Service) etcdFenced(ctx context.Context, o *operation) (Reply, error) {
	reply, err := s.underFence(ctx, o)
	if o.Unknown() && errors.Is(err, locking.ErrOutcomeUnknown) && ctx.Err() == nil {
		// The lease ended before the COMMIT was decided: the next one, with its newer fence, may decide it.
		return s.underFence(ctx, o)
	}
	return reply, err
}

func (s *Service) underFence(ctx context.Context, o *operation) (Reply, error) {
	return s.underLock(ctx, s.cfg.Locks, o.lockNames(), func(ctx context.Context, l locking.Lease) (Reply, error) {
		return s.transact(ctx, o, func(ctx context.Context, a *attempt) (Reply, error) {
			a.guard(l.Fence)
			return a.readAndDecide(ctx)
		})
	})
}

// guard queues the statement that this package is about, once for each account,
// in id order. It is four things in one:
//
//   - the fence check: the row takes no number lower than one it has seen, and
//     none of another counter. Equal passes, one holder may write several times;
//   - the row lock: a holder with a newer fence waits for the end of this
//     transaction, so that nothing written here can land behind it;
//   - the read: RETURNING is the row as it is now, after the wait, under the lock;
//   - the news: the fence is written, and committed with the rest, so that
//     older holders are refused from now on.
//
// It is the first statement. A read before it could be out of date. And it is
// two statements, not one with id = ANY($1), which promises no order.
//
// An account that was never fenced takes the epoch of the first fence.
func (a *attempt) guard(fence locking.Fence) {
	a.guards, a.fence, a.epoch = true, fence, a.s.cfg.Epoch
	for _, id := range a.pair() {
		a.read(`
			UPDATE accounts
			SET fence = $2, fence_epoch = $3
			WHERE id = $1
			AND (fence_epoch = '' OR fence_epoch = $3 AND fence <= $2)
			RETURNING id, owner_id, currency, balance, held, clock_timestamp()`, id, int64(fence), a.epoch)
	}
}

// lockNames are the keys of both accounts at the lock store. String is canonical
// (lower case, hyphens), so that one account has one lock however a client writes it.
func (o *operation) lockNames() []string {
	ids := o.pair()
	return []string{"account/" + ids[0].String(), "account/" + ids[1].String()}
}

// errUnfenced is a lease with fence 0: of a store that cannot fence. Every holder
// would pass the guard, so that none may begin.
var errUnfenced = &UnavailableError{errors.New("its lease has no fence: this store cannot fence, and transfers need one that does")}

// underLock runs fn while the store grants all names to an operation, in one
// acquisition: all or none, so that no operation waits for one account while it
// holds the other.
//
// The result of fn is the result. If the lease went away meanwhile, fn's ctx
// ended with locking.ErrLost as its cause, and fn either stopped in time, or
// committed, and then the transfer stands. A release that fails changes neither.
func (s *Service) underLock(ctx context.Context, store locking.Store, names []string,
	fn func(context.Context, locking.Lease) (Reply, error),
) (reply Reply, err error) {
	switch err := s.breaker.Allow(ctx); {
	case err == nil:
	case ctx.Err() != nil:
		return Reply{}, context.Cause(ctx)
	default:
		s.cfg.Count(Unavailable, s.cfg.Strategy)
		return Reply{}, &UnavailableError{err}
	}
	var entered bool
	var fnErr error
	err = locking.Do(ctx, store, s.cfg.Lock, names, func(ctx context.Context, l locking.Lease) error {
		entered = true
		if fnErr = errUnfenced; l.Fence > 0 {
			reply, fnErr = fn(ctx, l)
		}
		return fnErr
	})
	switch {
	case entered:
		return reply, fnErr
	case errors.Is(err, locking.ErrKey), errors.Is(err, locking.ErrLost), // ErrLost: granted too late to be used
		errors.Is(err, ErrEpoch): // an answer, and one that asking again does not change
		return Reply{}, err
	case ctx.Err() != nil:
		return Reply{}, context.Cause(ctx)
	case errors.Is(err, locking.ErrBusy):
		return Reply{}, err
	}
	// No answer is never taken for a grant, and no money moves without one.
	s.breaker.Failed(err)
	s.cfg.Count(Unavailable, s.cfg.Strategy)
	return Reply{}, &UnavailableError{err}
}
