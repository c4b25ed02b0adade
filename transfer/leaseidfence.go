package transfer

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"shop/locking"
)

// leaseIDFence: the fence as an article has it. Wrong in five ways, and each of
// them reads well.
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
func (s *Service) leaseIDFence(ctx context.Context, j *job) (Reply, error) {
	lock := []string{"transfer/" + j.id.String()}
	return s.underLock(ctx, j, s.leaseIDs, lock, func(ctx context.Context, l locking.Lease) (Reply, error) {
		return s.transact(ctx, j, func(ctx context.Context, t *tx) (Reply, error) {
			token := strconv.FormatInt(int64(l.Fence), 16)
			t.fence, t.source = l.Fence, "lease id"
			if err := t.begin(ctx, "begin"); err != nil {
				return Reply{}, err
			}
			var seen string
			t.batch.Queue(`SELECT lease_token FROM accounts WHERE id = $1`, j.from).Query(func(rows pgx.Rows) error {
				t.answered++
				_, err := pgx.ForEachRow(rows, []any{&seen}, func() error { return nil })
				return err
			})
			if err := t.flush(ctx); err != nil {
				return Reply{}, err
			}
			if token < seen {
				s.count(FenceRefused, j.strategy)
				return Reply{}, fmt.Errorf("%w: lease id %s, account %s has seen %s", locking.ErrStale, token, j.from, seen)
			}
			t.read(selectAccounts, j.pair())
			reply, err := t.rest(ctx, j)
			if err == nil {
				t.exec(`UPDATE accounts SET lease_token = $2 WHERE id = $1`, j.from, token)
			}
			return reply, err
		})
	})
}
