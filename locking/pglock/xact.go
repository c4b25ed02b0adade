package pglock

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"shop/locking"
	"shop/locking/driver"
)

// Hash returns the number that stands for key in advisory locks: the first 64 bits of its
// SHA-256. It never changes. PostgreSQL's hashtext has only 32 bits, of which 77,000 keys are
// enough to make two collide as often as not, and is not documented. Keys that collide are one lock.
func Hash(key string) int64 {
	sum := sha256.Sum256([]byte(key))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

var (
	// ErrNoTx reports a lock outside of a transaction, which would end with its own statement.
	ErrNoTx = errors.New("pglock: a lock until the end of the transaction needs a transaction")
	// ErrNoOwner reports a TryXactLease without an owner: the row of a free key has none either.
	ErrNoOwner = errors.New("pglock: a lease needs an owner")
	// ErrNoRow reports a LockRow of a key that has no row.
	ErrNoRow = errors.New("pglock: no row to lock: add it with MakeRow")
)

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

// TryXactLease takes a lease of key in the table of Store, as a part of tx: it begins, with its
// TTL, at once, and others see it when tx has committed. After a rollback there is none. A Store on
// the same table renews and releases it.
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

func checkXact(tx Tx, key string) error {
	if err := locking.CheckKeys([]string{key}); err != nil {
		return err
	}
	if locking.CheckClient(tx) != nil || tx.Conn().PgConn().TxStatus() == 'I' {
		return fmt.Errorf("%w: %q", ErrNoTx, key)
	}
	return nil
}

// lock sends a statement, and returns the number of its rows.
func lock(ctx context.Context, tx Tx, key, sql string, args ...any) (rows int64, err error) {
	if err := checkXact(tx, key); err != nil {
		return 0, err
	}
	tag, err := tx.Exec(ctx, sql, args...)
	if err != nil {
		return 0, fmt.Errorf("pglock: lock %q: %w", key, busy(err))
	}
	return tag.RowsAffected(), nil
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

// busy adds locking.ErrBusy to lock_not_available: of NOWAIT, or after lock_timeout.
func busy(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "55P03" {
		return fmt.Errorf("%w: %w", locking.ErrBusy, err)
	}
	return err
}
