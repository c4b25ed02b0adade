package transfer

import "context"

// serializable: let the database find out. Right, if every 40001 is run again.
//
// At SERIALIZABLE, PostgreSQL lets commit only what could have happened one after
// the other. The code is naive's, in one transaction, and whoever would have lost
// somebody's update gets 40001 instead and starts over: the whole transaction,
// reading included. On a hot account that is most of them.
func (s *Service) serializable(ctx context.Context, j *job) (Reply, error) {
	return s.transact(ctx, j, func(ctx context.Context, t *tx) (Reply, error) {
		if err := t.begin(ctx, "begin isolation level serializable"); err != nil {
			return Reply{}, err
		}
		t.read(selectAccounts, j.pair())
		return t.rest(ctx, j)
	})
}
