// SPDX-License-Identifier: MIT

package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"shop/locking"
)

// Commit commits tx by locking.Commit, with the classification that it asks for: an error matches
// locking.ErrOutcomeUnknown, unless the server has refused, or nothing was sent.
//
// A COMMIT that a synchronous standby has not confirmed may be answered with a warning alone: package pgtx waits for it.
func Commit(ctx context.Context, tx pgx.Tx, limit time.Duration) error {
	return locking.Commit(ctx, limit, func(ctx context.Context) error {
		closed := tx.Conn().IsClosed()
		err := tx.Commit(ctx)
		var refused *pgconn.PgError
		switch {
		case err == nil, errors.Is(err, pgx.ErrTxCommitRollback), errors.Is(err, pgx.ErrTxClosed), closed, unsent(err),
			errors.As(err, &refused) && refused.SeverityUnlocalized == "ERROR": // a FATAL may follow a COMMIT
			return err
		}
		return fmt.Errorf("%w: %w", locking.ErrOutcomeUnknown, err)
	})
}

// CommitLimit is how long BeginFunc waits for the answer to COMMIT.
const CommitLimit = 5 * time.Second

// BeginFunc is pgx.BeginFunc with Commit: it runs fn in a transaction, which it rolls back if fn fails. Once COMMIT has
// begun, neither the caller nor the loss of a lease cancels it.
func BeginFunc(ctx context.Context, db interface {
	Begin(context.Context) (pgx.Tx, error)
}, fn func(pgx.Tx) error,
) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after COMMIT; if ctx is cancelled, it closes the connection
	if err := fn(tx); err != nil {
		return err
	}
	return Commit(ctx, tx, CommitLimit)
}

// unsent reports whether nothing was sent on a connection that was open. pgx says so too of an answer that is lost with its
// connection: it peeks, closes the connection, and reads again (MultiResultReader.NextResult in 5.12.0).
func unsent(err error) bool { return pgconn.SafeToRetry(err) && !errors.Is(err, pgconn.ErrConnClosed) }
