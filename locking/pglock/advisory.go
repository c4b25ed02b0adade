// SPDX-License-Identifier: MIT

package pglock

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"shop/locking"
)

// Hash returns the number that stands for key in advisory locks: the first 64 bits of its
// SHA-256. It never changes. PostgreSQL's hashtext has only 32 bits, of which 77,000 keys are
// enough to make two collide as often as not, and is not documented. Keys that collide are one lock.
func Hash(key string) int64 {
	sum := sha256.Sum256([]byte(key))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// XactLock waits for the advisory lock of key, and holds it until the end of tx. A rollback to
// an earlier savepoint releases it too.
//
// The lock excludes only transactions that take it. What it protects must be read in a later
// statement: the snapshot of a statement that waited is older than the lock.
func XactLock(ctx context.Context, tx Tx, key string) error {
	_, err := lock(ctx, tx, key, `SELECT pg_advisory_xact_lock($1)`, Hash(key))
	return err
}

// TryXactLock is XactLock without waiting: it returns locking.ErrBusy if another session has
// the lock or waits for it. tx may continue after that.
func TryXactLock(ctx context.Context, tx Tx, key string) error {
	return granted(key)(lock(ctx, tx, key, `SELECT WHERE pg_try_advisory_xact_lock($1)`, Hash(key)))
}

// XactLockWithin is XactLock with a time limit, in whole milliseconds, after which it returns
// locking.ErrBusy. tx may continue after that, and its lock_timeout is as before. A deadlock is
// not a time-out: it is the server's error 40P01, and ends tx.
func XactLockWithin(ctx context.Context, tx Tx, key string, limit time.Duration) error {
	ms := limit.Milliseconds()
	if ms < 1 || ms > math.MaxInt32 { // to PostgreSQL 0 is no limit
		return fmt.Errorf("pglock: lock %q within %v: the limit must be 1 ms to 24 days", key, limit)
	}
	return granted(key)(lock(ctx, tx, key, `SELECT WHERE xact_lock_within($1, $2)`, Hash(key), int32(ms)))
}

// XactLockRow is XactLock for the row of table with this primary key, which need not exist. The
// lock is named by two integers, which never collide with the one integer of the other functions.
func XactLockRow(ctx context.Context, tx Tx, table string, id int32) error {
	// An oid has 32 bits without a sign. The cast keeps them, where one by way of bigint would overflow.
	_, err := lock(ctx, tx, table, `SELECT pg_advisory_xact_lock($1::text::regclass::oid::int4, $2)`, table, id)
	return err
}

// granted returns the result of a statement that returns a row if it has locked.
func granted(key string) func(rows int64, err error) error {
	return func(rows int64, err error) error {
		if err == nil && rows == 0 {
			return fmt.Errorf("pglock: lock %q: %w", key, locking.ErrBusy)
		}
		return err
	}
}
