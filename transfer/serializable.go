package transfer

import (
	"context"

	"shop/locking/idempotency/pgtx"
)

// serializable: let the database find out. Right, if every 40001 is run again.
//
// At SERIALIZABLE, PostgreSQL lets commit only what could have happened one after
// the other. The code is naive's, in one transaction. A transfer that would lose
// another one's update gets 40001 instead and starts over: the whole transaction,
// reading included. On a hot account that is most of them.
func (s *Service) serializable(ctx context.Context, o *operation) (Reply, error) {
	o.Begin = pgtx.BeginSerializable
	return s.transact(ctx, o, func(ctx context.Context, a *attempt) (Reply, error) {
		a.read(selectAccounts, o.pair())
		return a.readAndDecide(ctx)
	})
}
