package transfer

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"shop/locking"
	"shop/locking/idempotency/pgtx"
)

// leaseIDFence: the id of an etcd lease as the fence, as published examples have it
// (doc.go, Sources). Wrong in five ways.
//
//   - The lock is one per transfer, so that two transfers of one account do not
//     exclude each other.
//   - The token is the id of a lease. Ids are unique, not ordered: each etcd member
//     makes its own, and of two members one always has the greater ones. A rightful
//     holder is refused for ever, and a stale one gets through.
//   - The token is read with no lock: what is compared may have changed when it counts.
//   - Tokens are compared as strings: "9" is newer than "10".
//   - No row is locked, the payee's least of all, and both are written with
//     balances that were computed from old ones.
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
				a.Exec(`UPDATE accounts SET lease_token = $2 WHERE id = $1`, o.from, token)
			}
			return reply, err
		})
	})
}
