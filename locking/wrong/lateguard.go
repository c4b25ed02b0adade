// SPDX-License-Identifier: MIT

package wrong

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"shop/locking"
)

// DB is a pool or a connection.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// AddGuardedLate adds n to the balance of the only account, under a lock with this fence. work
// is what the holder does between the read and the write. The guard is at the write alone: it
// refuses an older fence than that of the last write, but what this holder has read may be
// older than that write.
func AddGuardedLate(ctx context.Context, db DB, fence locking.Fence, n int64, work func()) error {
	var balance int64
	if err := db.QueryRow(ctx, `SELECT balance FROM account`).Scan(&balance); err != nil {
		return err
	}
	work()
	tag, err := db.Exec(ctx, `
		UPDATE account
		SET balance = $1, fence = $2
		WHERE fence <= $2`, balance+n, int64(fence))
	if err == nil && tag.RowsAffected() == 0 {
		return locking.ErrStale
	}
	return err
}
