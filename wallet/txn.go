// SPDX-License-Identifier: MIT

package wallet

import "context"

// txn reads first, in a WithTransaction. The balances are right, but it calls the bonus service
// too often.
//
// All statements read one snapshot, and MongoDB refuses to overwrite what has changed since. So
// no update is lost. But the refusal comes with the write, after the call of the bonus service,
// and the callback runs again from its beginning. With 32 writers the service is called
// several times for each credit (BenchmarkCredit).
func (s *Service) txn(ctx context.Context, o *operation) (Reply, error) {
	return s.transact(ctx, o, func(ctx context.Context) (Reply, error) {
		wallets, err := s.read(ctx, o)
		if err != nil {
			return Reply{}, err
		}
		return s.finish(ctx, o, wallets, s.callBonus)
	})
}
