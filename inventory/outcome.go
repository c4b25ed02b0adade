package inventory

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
	errConflict = errors.New("inventory: lost a race, run the whole transaction again")
	errGuard    = errors.New("inventory: CHECK (stock >= 0) refused the write")
	errKeyTaken = errors.New("inventory: the key has an answer already")
	errTaken    = errors.New("inventory: someone else holds the advisory lock")
	errLostConn = errors.New("inventory: connection lost before COMMIT was sent")
)

// ambiguousError is a COMMIT that was sent and not answered.
type ambiguousError struct{ err error }

func (e *ambiguousError) Error() string { return "inventory: COMMIT sent, no answer: " + e.err.Error() }
func (e *ambiguousError) Unwrap() error { return e.err }

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
	case pg.Code == "23514" && pg.ConstraintName == "products_stock_check":
		return fmt.Errorf("%w: %w", errGuard, pg)
	case pg.Code == "23505" && pg.ConstraintName == "order_keys_pkey":
		return fmt.Errorf("%w: %w", errKeyTaken, pg)
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
