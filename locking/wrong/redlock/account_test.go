// SPDX-License-Identifier: MIT

package redlock

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"shop/locking"
	"shop/locking/idempotency/pgtx/pgtest"
)

// database is a pool or a connection.
type database interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// newAccount makes the table of one account, and the sequence of its fences.
func newAccount(t *testing.T) *pgtest.Database {
	t.Helper()
	db := pgtest.New(t)
	_, err := db.Pool.Exec(t.Context(), `
		CREATE TABLE account AS SELECT 100::bigint AS balance, 0::bigint AS fence;
		CREATE SEQUENCE fences`)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func balance(t *testing.T, db database) (n int64) {
	t.Helper()
	if err := db.QueryRow(t.Context(), `SELECT balance FROM account`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// update adds to the balance by a read and a write, which is correct only under a lock, or
// with a fence.
type update struct {
	db      database
	fenced  bool
	fence   int64
	balance int64
}

// read is called when the lock is held. A fenced update stores its fence before it reads: a
// holder with an older one can no longer write what it has read.
func (u *update) read(ctx context.Context) error {
	if u.fenced {
		if err := u.db.QueryRow(ctx, `SELECT nextval('fences')`).Scan(&u.fence); err != nil {
			return err
		}
		if err := stale(u.db.Exec(ctx, `UPDATE account SET fence = $1 WHERE fence <= $1`, u.fence)); err != nil {
			return err
		}
	}
	return u.db.QueryRow(ctx, `SELECT balance FROM account`).Scan(&u.balance)
}

func (u *update) write(ctx context.Context, add int64) error {
	if u.fenced {
		return stale(u.db.Exec(ctx, `UPDATE account SET balance = $1 WHERE fence = $2`, u.balance+add, u.fence))
	}
	_, err := u.db.Exec(ctx, `UPDATE account SET balance = $1`, u.balance+add)
	return err
}

// stale returns locking.ErrStale if no row was updated.
func stale(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.RowsAffected() == 0 {
		return locking.ErrStale
	}
	return err
}
