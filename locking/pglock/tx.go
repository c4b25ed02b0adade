// SPDX-License-Identifier: MIT

package pglock

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"shop/locking"
)

// Tx is a pgx.Tx, or a *pgxpool.Conn on which BEGIN was sent. A pool is neither, and
// does not compile.
type Tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Conn() *pgx.Conn
}

// ErrNoTx reports a lock outside of a transaction, which would end with its own statement.
var ErrNoTx = errors.New("pglock: a lock until the end of the transaction needs a transaction")

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

// busy adds locking.ErrBusy to lock_not_available: of NOWAIT, or after lock_timeout.
func busy(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "55P03" {
		return fmt.Errorf("%w: %w", locking.ErrBusy, err)
	}
	return err
}
