package pgtx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"shop/locking"
	"shop/locking/idempotency"
)

// retryError is the error of an attempt that the next attempt may not meet.
type retryError struct {
	text  string
	event Event
	last  error // what the caller gets when no attempt is left
}

func (e *retryError) Error() string { return "pgtx: " + e.text }

var (
	// ErrRetry is for bodies that detect that their data has changed since they read it.
	ErrRetry    error = &retryError{"lost a race, retry the whole transaction", Retried, locking.ErrBusy}
	errGuard          = &retryError{"a guard constraint refused the write", GuardTripped, locking.ErrBusy}
	errKeyTaken       = &retryError{"the key already has a reply", Retried, locking.ErrBusy}
	errLostConn       = &retryError{"connection lost before COMMIT was sent", Retried, ErrUnreachable}
	errNoAnswer       = &retryError{"COMMIT sent, no answer", Ambiguous, locking.ErrOutcomeUnknown}

	// ErrUnreachable reports that PostgreSQL has no free connection or does not answer:
	// the next request would fail as well. It matches locking.ErrBusy.
	ErrUnreachable = fmt.Errorf("%w: PostgreSQL gives no connection or no answer", locking.ErrBusy)
)

// unknownError matches locking.ErrOutcomeUnknown and no other error, so that no
// caller takes it for "busy". errors.As finds the error of the last attempt in it.
type unknownError struct{ last error }

func (e *unknownError) Error() string {
	return fmt.Sprintf("%v: %v", locking.ErrOutcomeUnknown, e.last)
}
func (e *unknownError) Is(target error) bool { return target == locking.ErrOutcomeUnknown }
func (e *unknownError) As(target any) bool   { return errors.As(e.last, target) }

// isRefusal reports whether err means that nothing of the last round trip was committed.
func isRefusal(err error) bool { return refusal(err) != nil || pgconn.SafeToRetry(err) }

// refusal returns the server's ERROR in err; nil: there is none. A FATAL is not a
// refusal: it may follow a COMMIT.
func refusal(err error) *pgconn.PgError {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR" {
		return pg
	}
	return nil
}

// classify returns the meaning of an error of a round trip. It uses the SQLSTATE and
// never the text, which may be translated.
func (db *DB) classify(ctx context.Context, conn *pgx.Conn, err error) error {
	pg := refusal(err)
	switch {
	case err == nil, errors.Is(err, idempotency.ErrInProgress):
		return err
	case ctx.Err() != nil && (pg == nil || pg.Code == "57014"): // query_canceled
		return context.Cause(ctx)
	case pg == nil && conn.IsClosed():
		return fmt.Errorf("%w: %w", errLostConn, err)
	case pg == nil:
		return err
	case pg.Code == "40001", pg.Code == "40P01": // serialization_failure, deadlock_detected
		return fmt.Errorf("%w: %w", ErrRetry, err)
	case pg.Code == "23514" && slices.Contains(db.cfg.Guards, pg.ConstraintName): // check_violation
		return fmt.Errorf("%w: %w", errGuard, err)
	case pg.Code == "23505" && pg.ConstraintName == "idempotency_keys_pkey": // unique_violation
		return fmt.Errorf("%w: %w", errKeyTaken, err)
	case Unavailable(pg): // the server ran out of time or memory, and rolls back
		return fmt.Errorf("%w: %w", locking.ErrBusy, err)
	}
	return err
}

// Unavailable reports whether err is caused by the state of PostgreSQL or of the network,
// and not by the statement: another request may not meet it.
func Unavailable(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return strings.HasPrefix(pg.Code, "08") || // connection exception
			strings.HasPrefix(pg.Code, "53") || // insufficient resources, such as connections
			strings.HasPrefix(pg.Code, "57") || // operator intervention: shutdown, starting up, statement_timeout
			pg.Code == "55P03" // lock_not_available: lock_timeout
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err)
}
