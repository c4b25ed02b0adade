package wallet

import "context"

// lockLate: the right lock in the wrong place, behind the request to the
// bonus service.
//
// The balances are right, since the lock is before the reading. But a request that
// is refused at it has asked the bonus service, and asks again. It is lockid with the slow
// call moved up, to hold the lock for a shorter time.
func (s *Service) lockLate(ctx context.Context, j *job) (Reply, error) {
	return s.transact(ctx, j, func(ctx context.Context) (Reply, error) {
		bonus, err := s.ask(ctx, j)
		if err != nil {
			return Reply{}, err
		}
		wallets, err := s.lock(ctx, j)
		if err != nil {
			return Reply{}, err
		}
		return s.finish(ctx, j, wallets, func(context.Context, *job) (int64, error) { return bonus, nil })
	})
}
