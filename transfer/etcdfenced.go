// SPDX-License-Identifier: MIT

package transfer

import (
	"context"
	"errors"

	"shop/locking"
)

// etcdFenced takes an etcd lock on both accounts, and begins its transaction with a guard.
// It is right, and the default.
//
// The lock makes it fast: a request for a hot account waits in etcd's queue, first come,
// first served, without a connection to PostgreSQL. The guard makes it right, even if the
// lock is lost, revoked, or granted to the next holder: a row that has seen the newer fence
// refuses the old holder, and a row that the old holder's guard has locked makes the newer
// holder wait.
//
// Without etcd no transfer begins, since none begins without a lease. No money is lost.
func (s *Service) etcdFenced(ctx context.Context, o *operation) (Reply, error) {
	reply, err := s.underFence(ctx, o)
	if o.Unknown() && errors.Is(err, locking.ErrOutcomeUnknown) && ctx.Err() == nil {
		// The lease ended before the COMMIT was resolved. The next lease, with its newer fence, may resolve it.
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

// guard queues the central statement of this package, once for each account, in id order.
// The statement does four things:
//
//   - it checks the fence: the row accepts no fence lower than one that it has seen, and
//     none of another epoch. An equal fence passes: one holder may write several times;
//   - it locks the row: a holder with a newer fence waits until this transaction ends, so
//     nothing that this transaction writes can arrive after that holder's writes;
//   - it reads the row: RETURNING is the current row, after the wait and under the lock;
//   - it stores the fence: once that is committed, the row refuses older holders.
//
// The guard comes first, because a read before it could be out of date. It is one statement
// for each account, because id = ANY($1) promises no order.
//
// An account without an epoch takes the epoch of its first fence.
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

// lockNames returns the keys of both accounts at the lock store. String is canonical (lower
// case, hyphens): an account has one lock, however a client spells its id.
func (o *operation) lockNames() []string {
	ids := o.pair()
	return []string{"account/" + ids[0].String(), "account/" + ids[1].String()}
}

// errUnfenced refuses a lease with fence 0, which comes from a store that cannot fence. With
// it, every holder would pass the guard.
var errUnfenced = &UnavailableError{errors.New("the lease has no fence, and transfers need a store that fences")}

// underLock runs fn while it holds all names at the store. It acquires all or none, so no
// operation waits for one account while it holds the other.
//
// underLock returns what fn returns. If the lease is lost while fn runs, fn's ctx ends with
// locking.ErrLost as its cause. Then fn has either stopped in time, or committed, and the
// transfer stands. A release that fails does not change the result.
func (s *Service) underLock(ctx context.Context, store locking.Store, names []string,
	fn func(context.Context, locking.Lease) (Reply, error),
) (reply Reply, err error) {
	if err := s.allowed(ctx); err != nil {
		return Reply{}, err
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
	if entered {
		return reply, fnErr
	}
	return Reply{}, s.noLease(ctx, err)
}

// allowed returns an error while the lock store is known not to answer.
func (s *Service) allowed(ctx context.Context) error {
	switch err := s.breaker.Allow(ctx); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		s.cfg.Count(Unavailable, s.cfg.Strategy)
		return &UnavailableError{err}
	}
}

// noLease returns what the caller gets when the store granted no lease.
func (s *Service) noLease(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, locking.ErrKey), errors.Is(err, locking.ErrLost), // ErrLost: granted too late to be used
		errors.Is(err, ErrEpoch): // an answer that a retry does not change
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, locking.ErrBusy):
		return err
	}
	// A missing answer is never taken for a grant, and no money moves without a grant.
	s.breaker.Failed(err)
	s.cfg.Count(Unavailable, s.cfg.Strategy)
	return &UnavailableError{err}
}
