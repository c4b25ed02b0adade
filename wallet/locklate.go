// SPDX-License-Identifier: MIT

package wallet

import "context"

// lockLate has the right lock in the wrong place: after the call of the bonus service.
//
// The balances are right, because the lock comes before the read. But a request that is
// refused at the lock has called the bonus service, and calls it again. lockLate is lockid
// with the slow call moved before the lock, to hold the lock for a shorter time.
func (s *Service) lockLate(ctx context.Context, o *operation) (Reply, error) {
	return s.transact(ctx, o, func(ctx context.Context) (Reply, error) {
		bonus, err := s.callBonus(ctx, o)
		if err != nil {
			return Reply{}, err
		}
		wallets, err := s.lock(ctx, o)
		if err != nil {
			return Reply{}, err
		}
		return s.finish(ctx, o, wallets, func(context.Context, *operation) (int64, error) { return bonus, nil })
	})
}
