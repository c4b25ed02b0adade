// SPDX-License-Identifier: MIT

package transfer

import (
	"context"

	"shop/locking/idempotency/pgtx"
)

// serializable lets the database detect conflicts. It is right if every transaction that
// gets 40001 is run again.
//
// At SERIALIZABLE, PostgreSQL commits only transactions that could have run one at a time.
// The code is naive's, in one transaction. A transfer that would overwrite another one's
// update gets 40001 instead, and the whole transaction runs again, reads included. On a hot
// account this happens to most transfers.
func (s *Service) serializable(ctx context.Context, o *operation) (Reply, error) {
	o.Begin = pgtx.BeginSerializable
	return s.transact(ctx, o, func(ctx context.Context, a *attempt) (Reply, error) {
		a.read(selectAccounts, o.pair())
		return a.readAndDecide(ctx)
	})
}
