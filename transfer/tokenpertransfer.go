// SPDX-License-Identifier: MIT

package transfer

import (
	"cmp"
	"context"
	"fmt"

	"shop/locking"
	"shop/locking/idempotency/pgtx"
)

// tokenPerTransfer takes the fencing token for an idempotency key, as a published example does (docs/patterns.md, after D4). Its
// lock is for one transfer, and its token is right: no late holder of that lock changes anything. It is wrong all the same.
//
// The token orders the holders of a lock. It does not tell whether the transfer has been made: a request that is repeated,
// because its answer was lost, gets the lock again, with a newer token. last >= token is false, and the money moves a
// second time. An idempotency key that is stored in the same transaction is what tells (package pgtx).
func (s *Service) tokenPerTransfer(ctx context.Context, o *operation) (Reply, error) {
	lock := []string{"transfer/" + o.Client.String() + "/" + cmp.Or(o.Key, o.id.String())}
	return s.underLock(ctx, s.cfg.Locks, lock, func(ctx context.Context, l locking.Lease) (Reply, error) {
		bare := *o
		bare.Key, bare.clientKey = "", o.Key // pgtx stores no answer
		return s.transact(ctx, &bare, func(ctx context.Context, a *attempt) (Reply, error) {
			a.fence, a.epoch = l.Fence, s.cfg.Epoch
			a.lockRows()
			last, err := pgtx.Select[int64](ctx, a.Tx, `
				SELECT COALESCE(max(e.fence), 0)
				FROM transfers t
				JOIN ledger_entries e ON e.transfer_id = t.id
				WHERE t.client_id = $1 AND t.idempotency_key = $2`, o.Client, o.Key)
			if err != nil {
				return Reply{}, err
			}
			if token := int64(l.Fence); last[0] >= token {
				s.cfg.Count(FenceRefused, s.cfg.Strategy)
				return Reply{}, fmt.Errorf("%w: token %d, the transfer has seen %d", locking.ErrStale, token, last[0])
			}
			reply, err := a.readAndDecide(ctx)
			if err == nil && o.Key != "" { // for the audit: each repetition overwrites the answer
				a.Queue(`
					INSERT INTO idempotency_keys (client_id, key, fingerprint, status, body)
					VALUES ($1, $2, $3, $4, $5)
					ON CONFLICT (client_id, key) DO UPDATE SET status = EXCLUDED.status, body = EXCLUDED.body`,
					o.Client, o.Key, o.Fingerprint[:], reply.Status, reply.Body)
			}
			return reply, err
		})
	})
}
