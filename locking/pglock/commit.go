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

// unsent reports whether nothing was sent on a connection that was open. pgx says so too of an answer that is lost with its
// connection: it peeks, closes the connection, and reads again (MultiResultReader.NextResult in 5.12.0).
func unsent(err error) bool { return pgconn.SafeToRetry(err) && !errors.Is(err, pgconn.ErrConnClosed) }
