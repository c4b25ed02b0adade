// SPDX-License-Identifier: MIT

package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"shop/locking"
)

// ErrNoGuard reports a resource without a row in guards: see MakeGuards.
var ErrNoGuard = errors.New("mysqllock: no guard: make it beforehand, with MakeGuards")

// MakeGuards adds the rows that Guard needs, before there is traffic, each in a transaction of its own. It
// does not change existing ones.
func MakeGuards(ctx context.Context, db *sql.DB, resources ...string) error {
	if err := locking.CheckKeys(resources); err != nil {
		return err
	}
	for _, resource := range resources {
		_, err := db.ExecContext(ctx, `INSERT INTO guards (resource) VALUES (?) ON DUPLICATE KEY UPDATE fence = fence`, []byte(resource))
		if err != nil {
			return fmt.Errorf("mysqllock: make guard %q: %w", resource, err)
		}
	}
	return nil
}

// Guard returns nil if no transaction that guarded resource with a newer fence has
// committed. Otherwise it returns locking.ErrStale, and tx must be rolled back. An equal
// fence passes. Until the end of tx all other guards of the resource wait.
//
// Guard must be the first statement of tx. After an earlier SELECT, all that tx reads without FOR UPDATE
// would be as old as that SELECT, and not as the guard: MySQL's default isolation reads from a
// snapshot, and reports no conflict. If the resource has no row, the error is ErrNoGuard.
func Guard(ctx context.Context, tx *sql.Tx, resource string, fence locking.Fence) error {
	if err := locking.CheckKeys([]string{resource}); err != nil {
		return err
	}
	if fence <= 0 || tx == nil {
		return fmt.Errorf("%w: fence %d of %q, in a transaction: %t", locking.ErrUnfenced, fence, resource, tx != nil)
	}
	err := advance(ctx, tx, []byte(resource), fence)
	if err != nil {
		return fmt.Errorf("mysqllock: guard %q: %w", resource, err)
	}
	return nil
}

// advance is check, lock and update in one statement. A statement that finds the row locked waits for the
// end of that transaction, and evaluates WHERE on the row as it is then. The counter makes an equal
// fence a change: otherwise it would affect no row, as a stale one does, unless the DSN has clientFoundRows.
//
// There is no upsert: two transactions that wait for a third one's insert, which is then rolled
// back, are in a deadlock.
func advance(ctx context.Context, tx *sql.Tx, resource []byte, fence locking.Fence) error {
	result, err := tx.ExecContext(ctx, `
		UPDATE guards
		SET fence = ?, passed = passed + 1
		WHERE resource = ? AND fence <= ?`, int64(fence), resource, int64(fence))
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	var seen locking.Fence
	err = tx.QueryRowContext(ctx, `SELECT fence FROM guards WHERE resource = ? FOR UPDATE`, resource).Scan(&seen)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNoGuard
	}
	if err == nil {
		err = fmt.Errorf("%w: fence %d, seen %d", locking.ErrStale, fence, seen)
	}
	return err
}
