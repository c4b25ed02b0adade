package transfer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"shop/locking"
)

// What one attempt can end with besides an answer; transact turns each into
// another attempt, within bounds. None of them is seen outside.
var (
	errConflict = errors.New("transfer: lost a race, run the whole transaction again")
	errGuard    = errors.New("transfer: CHECK (balance >= held) refused the write")
	errKeyTaken = errors.New("transfer: the key has an answer already")
	errNotDue   = errors.New("transfer: the hold is not reserved, or not due")
	errLostConn = errors.New("transfer: connection lost before COMMIT was sent")
)

// errNoConn is a pool that is used up, or cannot connect.
var errNoConn = fmt.Errorf("%w: no connection to PostgreSQL is free", locking.ErrBusy)

// isGone tells that a server is away, and that the next attempt would fail like this one.
func isGone(err error) bool {
	var locks *UnavailableError
	return errors.As(err, &locks) || errors.Is(err, errLostConn) || errors.Is(err, errSilent) || errors.Is(err, errNoConn)
}

// ambiguousError is a COMMIT that was sent and not answered.
type ambiguousError struct{ err error }

func (e *ambiguousError) Error() string { return "transfer: COMMIT sent, no answer: " + e.err.Error() }
func (e *ambiguousError) Unwrap() error { return e.err }

// refusal is an answer that will be stored, and that changes nothing else.
type refusal struct {
	why      error
	transfer Transfer
}

func (e *refusal) Error() string { return e.why.Error() }

// dueError is a refusal that need not be: holds of the payer have expired, their
// money has not been given back yet, and it would do.
type dueError struct{ holds []Transfer }

func (e *dueError) Error() string { return fmt.Sprintf("transfer: %d expired holds", len(e.holds)) }

// explain says what an error of a batch means. SQLSTATEs, never texts: those are translated.
func (t *tx) explain(ctx context.Context, err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR" {
		return t.explainSQLState(ctx, pg)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if t.conn.Conn().IsClosed() {
		return fmt.Errorf("%w: %w", errLostConn, err)
	}
	return err
}

func (t *tx) explainSQLState(ctx context.Context, pg *pgconn.PgError) error {
	switch {
	case pg.Code == "40001", pg.Code == "40P01": // serialization_failure, deadlock_detected
		return fmt.Errorf("%w: %w", errConflict, pg)
	case pg.Code == "23514" && (pg.ConstraintName == "accounts_funds" || pg.ConstraintName == "accounts_held_check"):
		return fmt.Errorf("%w: %w", errGuard, pg)
	case pg.Code == "23505" && pg.ConstraintName == "transfer_keys_pkey":
		return fmt.Errorf("%w: %w", errKeyTaken, pg)
	case pg.Code == "22012": // division_by_zero: of writeOutside
		return fmt.Errorf("%w: %w", errMissed, pg)
	case pg.Code == "55P03" && t.answered == t.keyAt: // lock_not_available, waiting for the first of this key
		return fmt.Errorf("%w: %w", ErrInProgress, pg)
	case pg.Code == "55P03":
		return fmt.Errorf("%w: %w", locking.ErrBusy, pg)
	case pg.Code == "57014" && ctx.Err() != nil: // query_canceled, by us
		return context.Cause(ctx)
	case pg.Code == "57014": // by statement_timeout
		return fmt.Errorf("%w: %w", locking.ErrBusy, pg)
	default:
		return pg
	}
}

// isOverload reports that the server refused a statement for want of time
// (lock_timeout, statement_timeout) or of resources (class 53), and not for what it says.
func isOverload(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "55P03" || pg.Code == "57014" || strings.HasPrefix(pg.Code, "53"))
}
