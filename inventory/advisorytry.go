// SPDX-License-Identifier: MIT

package inventory

import (
	"context"

	"shop/locking/idempotency/pgtx"
)

// advisoryTry tries the same lock as advisory without waiting for it. Right, as advisory is.
//
// A transaction that waits inside PostgreSQL occupies a connection. This one returns
// its connection and tries again later, so a few connections serve many waiters.
// The price: there is no queue, so the order of buyers is random.
func (s *Service) advisoryTry(ctx context.Context, p *purchase) (Reply, error) {
	return s.run(ctx, p.Op, func(ctx context.Context, tx *pgtx.Tx) (Reply, error) {
		if p.Unknown() { // an earlier attempt may still hold the lock: wait until it ends
			p.lockAdvisory(tx)
			return s.readUnderLock(ctx, tx, p, nil)
		}
		var granted []*[]bool
		for _, key := range p.lockKeys() {
			granted = append(granted, pgtx.QueueRows[bool](tx, `SELECT pg_try_advisory_xact_lock($1)`, key))
		}
		return s.readUnderLock(ctx, tx, p, granted)
	})
}
