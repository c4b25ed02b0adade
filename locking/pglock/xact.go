// SPDX-License-Identifier: MIT

package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/locking"
	"shop/locking/driver"
)

var (
	// ErrNoOwner reports a TryXactLease without an owner: the row of a free key has none either.
	ErrNoOwner = errors.New("pglock: a lease needs an owner")
	// ErrNoRow reports a LockRow of a key that has no row.
	ErrNoRow = errors.New("pglock: no row to lock: add it with MakeRow")
)

// MakeRow adds the row that LockRow locks, if there is none. It waits for every transaction that
// has added this row and not ended, so it belongs before the work, in a transaction of its own.
func MakeRow(ctx context.Context, tx Tx, key string) error {
	_, err := lock(ctx, tx, key, `INSERT INTO lock_rows (key) VALUES ($1) ON CONFLICT DO NOTHING`, key)
	return err
}

// LockRow locks the row of key in the table lock_rows until the end of tx, without waiting. It
// returns locking.ErrBusy if another transaction has it. After that, tx must be rolled back, at
// least to a savepoint. No two keys are one lock, but each needs a row (ErrNoRow).
func LockRow(ctx context.Context, tx Tx, key string) error {
	rows, err := lock(ctx, tx, key, `SELECT FROM lock_rows WHERE key = $1 FOR UPDATE NOWAIT`, key)
	if err == nil && rows == 0 {
		return fmt.Errorf("%w: %q", ErrNoRow, key)
	}
	return err
}

// TryXactLease takes a lease of key in the table of Store, as a part of tx: it begins, with its
// TTL, at once, and others see it when tx has committed. After a rollback there is none. A Store on
// the same table without a Prefix renews and releases it.
//
// The key needs no row beforehand, and calls for one key do not wait for each other: TryXactLease returns
// locking.ErrBusy if another transaction is just taking the key so, or if another owner has it. tx may
// continue after that. If owner has the lease already, it keeps its fence, and its TTL starts anew.
//
// Requests of a Store do not take the advisory lock: they wait for the end of tx if it has taken the
// key, so commit soon. owner must be one that no other holder uses, as rand.Text, and is not used again after a release.
func TryXactLease(ctx context.Context, tx Tx, key, owner string, ttl time.Duration) (locking.Lease, error) {
	if err := errors.Join(settings(ttl).Check(), checkXact(tx, key)); err != nil {
		return locking.Lease{}, err
	}
	if owner == "" {
		return locking.Lease{}, fmt.Errorf("%w: %q", ErrNoOwner, key)
	}
	sent, fence := time.Now(), locking.Fence(0)
	// locks_acquire runs only if the lock is granted. It does not lock the row of another holder, whose renewal
	// would have to wait for the end of tx.
	err := tx.Conn().QueryRow(ctx, `SELECT locks_acquire($1, $2, $3, false) WHERE pg_try_advisory_xact_lock($4)`,
		[]string{key}, owner, ttl, Hash(key)).Scan(&fence)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && fence == 0 {
		err = locking.ErrBusy
	}
	if err != nil {
		return locking.Lease{}, fmt.Errorf("pglock: lease %q: %w", key, err)
	}
	return locking.Lease{Keys: []string{key}, Owner: owner, Fence: fence, Until: sent.Add(ttl - driver.DefaultMargin(ttl))}, nil
}
