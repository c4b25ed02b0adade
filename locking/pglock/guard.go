// SPDX-License-Identifier: MIT

package pglock

import (
	"context"
	"fmt"

	"shop/locking"
)

// Guard returns nil if no transaction that guarded resource with a newer fence has
// committed. Otherwise it returns locking.ErrStale, and tx must be rolled back. An equal
// fence passes. Until the end of tx all other guards of the resource wait.
//
// Guard must be the first statement that touches what the lock protects, before any
// read that the decision uses. It uses the table guards of this package's migrations.
func Guard(ctx context.Context, tx Tx, resource string, fence locking.Fence) error {
	if err := locking.CheckKeys([]string{resource}); err != nil {
		return err
	}
	if fence <= 0 {
		return fmt.Errorf("%w: fence %d of %q", locking.ErrUnfenced, fence, resource)
	}
	if locking.CheckClient(tx) != nil || tx.Conn().PgConn().TxStatus() == 'I' {
		return fmt.Errorf("%w, and a transaction: %q is guarded in autocommit", locking.ErrUnfenced, resource)
	}
	// Check, lock and update are one statement. A statement that finds the row locked
	// waits for the end of that transaction, and evaluates WHERE on the row as it is then.
	// An insert waits for a concurrent insert of the same resource as well. Setting the
	// present value is an update to PostgreSQL: a new row version, and a lock. If WHERE is
	// false, the row stays locked too, until the rollback.
	tag, err := tx.Exec(ctx, `
		INSERT INTO guards AS g (resource, fence)
		VALUES ($1, $2)
		ON CONFLICT (resource) DO UPDATE
		SET fence = EXCLUDED.fence
		WHERE g.fence <= EXCLUDED.fence`, resource, int64(fence))
	switch {
	case err != nil:
		return fmt.Errorf("pglock: guard %q: %w", resource, err)
	case tag.RowsAffected() == 0:
		return fmt.Errorf("%w: fence %d of %q", locking.ErrStale, fence, resource)
	}
	return nil
}
