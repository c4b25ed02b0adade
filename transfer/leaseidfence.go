// SPDX-License-Identifier: MIT

package transfer

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"shop/locking"
	"shop/locking/idempotency/pgtx"
)

// leaseIDFence uses the id of an etcd lease as the fence, as published examples do (doc.go,
// Sources). It is wrong in five ways.
//
//   - The lock is per transfer, so two transfers of one account do not exclude each other.
//   - The token is the id of a lease. Ids are unique, not ordered: each etcd member makes
//     its own, and one member's ids are always greater than another's. A rightful holder
//     is refused for ever, and a stale one passes.
//   - The stored token is read without a lock: it may change between the comparison and the write.
//   - Tokens are compared as strings: "9" is newer than "10".
//   - No row is locked, and the payee's token is not even compared. Both rows are written with
//     balances that were computed from unlocked reads.
//
// With one member, one server and one transfer at a time it passes every test.
func (s *Service) leaseIDFence(ctx context.Context, o *operation) (Reply, error) {
	lock := []string{"transfer/" + o.id.String()}
	return s.underLock(ctx, s.cfg.LeaseIDs, lock, func(ctx context.Context, l locking.Lease) (Reply, error) {
		return s.transact(ctx, o, func(ctx context.Context, a *attempt) (Reply, error) {
			token := strconv.FormatInt(int64(l.Fence), 16)
			a.fence, a.epoch = l.Fence, "lease id"
			tokens, err := pgtx.Select[string](ctx, a.Tx, `SELECT lease_token FROM accounts WHERE id = $1`, o.from)
			if err != nil {
				return Reply{}, err
			}
			if seen := strings.Join(tokens, ""); token < seen {
				s.cfg.Count(FenceRefused, s.cfg.Strategy)
				return Reply{}, fmt.Errorf("%w: lease id %s, account %s has seen %s", locking.ErrStale, token, o.from, seen)
			}
			a.read(selectAccounts, o.pair())
			reply, err := a.readAndDecide(ctx)
			if err == nil {
				a.Queue(`UPDATE accounts SET lease_token = $2 WHERE id = $1`, o.from, token)
			}
			return reply, err
		})
	})
}
