package pglock

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"shop/locking"
)

// call sends a statement with one result, which is a transaction of its own, and waits for
// requestTimeout at most. It leaves the result as it is if there is no row. Whether it is prepared
// on its connection is a setting of the pool.
func (s *Store) call(ctx context.Context, result any, sql string, args ...any) error {
	if s.resolver.Closed() {
		return ErrClosed
	}
	limited, cancel := context.WithTimeout(ctx, s.requestTimeout)
	defer cancel()
	conn, err := s.pool.Acquire(limited)
	if err != nil {
		return locking.Unsent(ctx, err)
	}
	defer conn.Release()
	err = conn.QueryRow(limited, sql, args...).Scan(result)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return classify(ctx, err)
}

// classify returns locking.ErrOutcomeUnknown for a request that may have taken effect.
func classify(ctx context.Context, err error) error {
	if err == nil || refused(err) || pgconn.SafeToRetry(err) {
		return locking.MaskTimeout(ctx, err)
	}
	return locking.NoAnswer(ctx, err)
}

// refused reports whether err is the server's answer that nothing was done. FATAL ends the
// session, perhaps after the commit. query_canceled is no refusal: the statement may have taken an advisory lock of its session before.
func refused(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.SeverityUnlocalized == "ERROR" && answer.Code != queryCanceled
}

const queryCanceled = "57014"
