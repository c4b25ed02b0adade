package inventory

import (
	"context"

	"shop/locking/idempotency/pgtx"
)

// advisoryTry: the same lock, asked for and not waited for. Right, as advisory is.
//
// A transaction that waits inside PostgreSQL occupies a connection. This one gives
// its connection back and asks again later, so that a few connections serve many
// waiters. The price: there is no queue, and which buyer comes first is luck.
func (s *Service) advisoryTry(ctx context.Context, p *purchase) (Reply, error) {
	return s.run(ctx, p.Op, func(ctx context.Context, tx *pgtx.Tx) (Reply, error) {
		if p.Unknown() { // the first attempt may still hold the lock: wait for its end
			p.lockAdvisory(tx)
			return s.readUnderLock(ctx, tx, p, nil)
		}
		var granted []*[]bool
		for _, key := range p.lockKeys() {
			granted = append(granted, pgtx.Query[bool](tx, `SELECT pg_try_advisory_xact_lock($1)`, key))
		}
		return s.readUnderLock(ctx, tx, p, granted)
	})
}
