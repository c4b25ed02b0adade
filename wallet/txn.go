package wallet

import "context"

// txn: WithTransaction, read first. The balances are right, the bonus service is asked
// too often.
//
// All statements see one moment, and MongoDB refuses to overwrite what has
// changed since. So nothing is lost. But the refusal comes with the write, which
// is behind the request to the bonus service, and the callback runs again from its
// beginning: with 32 writers the service is asked several times for each credit
// (BenchmarkCredit).
func (s *Service) txn(ctx context.Context, j *job) (Reply, error) {
	return s.transact(ctx, j, func(ctx context.Context) (Reply, error) {
		wallets, err := s.read(ctx, j)
		if err != nil {
			return Reply{}, err
		}
		return s.finish(ctx, j, wallets, s.ask)
	})
}
