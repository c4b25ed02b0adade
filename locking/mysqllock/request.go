package mysqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"shop/locking"
)

// request sends one statement, which is a transaction of its own, and waits for its answer for requestTimeout at most.
//
// The text of a statement is complete: with placeholders the driver would prepare it first, in one
// more round trip, unless the DSN has interpolateParams. All text from outside is in hexadecimal, and so bytes to the server.
func (s *Store) request(ctx context.Context, send func(context.Context, *sql.Conn) error) error {
	if s.resolver.Closed() {
		return ErrClosed
	}
	limited, cancel := context.WithTimeout(ctx, s.requestTimeout)
	defer cancel()
	conn, err := s.db.Conn(limited)
	if err != nil {
		return locking.Unsent(ctx, err)
	}
	defer conn.Close()
	if err = send(limited, conn); err != nil {
		discard(conn) // a procedure that was killed leaves its transaction, and row locks, behind
	}
	return classify(ctx, err)
}

// call runs a procedure, and returns its result.
func (s *Store) call(ctx context.Context, procedure, wanted, owner string, numbers ...int64) (result int64, err error) {
	statement := fmt.Sprintf("CALL %s(x'%x', x'%x'", procedure, wanted, owner)
	for _, n := range numbers {
		statement += fmt.Sprintf(", %d", n)
	}
	err = s.request(ctx, func(ctx context.Context, conn *sql.Conn) error {
		return conn.QueryRowContext(ctx, statement+")").Scan(&result)
	})
	return result, err
}

// discard closes a connection, instead of returning it to the pool.
func discard(conn *sql.Conn) { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }

// names joins keys, none of which contains NUL.
func names(keys []string) string { return strings.Join(keys, "\x00") }

// classify returns locking.ErrOutcomeUnknown for a request that may have taken effect.
func classify(ctx context.Context, err error) error {
	if err == nil || refused(err) {
		return err
	}
	return locking.NoAnswer(ctx, err)
}

// retryable are the server's answers after which a request is sent again. It has stopped the request, perhaps
// after the commit.
var retryable = []uint16{
	1053, // the server shuts down
	1213, // a deadlock, or Galera: nothing was done
	1317, // KILL QUERY
	1927, // KILL (MariaDB)
	1969, // max_statement_time (MariaDB)
	3024, // max_execution_time (MySQL)
	4031, // wait_timeout, or KILL (MySQL)
}

// refused reports whether err is the server's answer that nothing was done, and that a retry does not help.
func refused(err error) bool {
	var answer *mysql.MySQLError
	return errors.As(err, &answer) && !slices.Contains(retryable, answer.Number)
}
