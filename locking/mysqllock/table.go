// SPDX-License-Identifier: MIT

package mysqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"shop/locking"
	"shop/locking/driver"
)

// TTLMin is the shortest TTL of a Store: the server has to flush several commits within
// it. A TTL is a whole number of milliseconds.
const TTLMin = 100 * time.Millisecond

// Options of a Store. The zero value is usable.
type Options struct {
	// Prefix begins the name of each key in the server; empty: none. Stores exclude each other only if they have the same
	// Prefix. End it with a character that no key begins with.
	Prefix string
}

// New makes a Store whose leases last ttl, in the table locks of this package's migrations. Stores exclude each other only if the
// DSN of their db names the same database. A request occupies a connection for one round trip, so two or three
// connections serve many leases; let db keep them idle (SetMaxIdleConns). None of them may be in a transaction while it is
// idle: a grant would be a part of that transaction. So completion_type must be NO_CHAIN, which is the default. The caller
// closes db, after the Store.
//
// MySQL has nothing that a release could wake a waiter of another process with, so the first waiter of each process
// asks again after 2 to 15 ms. In a process waiters are granted a key in the order of arrival, among the processes in any order.
func New(db *sql.DB, ttl time.Duration, o Options) (*driver.Store, error) {
	if err := locking.CheckClient(db); err != nil {
		return nil, fmt.Errorf("mysqllock: %w", err)
	}
	settings := settings(ttl)
	settings.Prefix = o.Prefix
	return driver.New(newTable(db, ttl), settings)
}

// settings are those of a Store.
func settings(ttl time.Duration) driver.Options {
	return driver.Options{
		Name: "mysqllock", TTL: ttl, TTLMin: TTLMin, TTLUnit: time.Millisecond, NameMax: locking.KeyMax,
		Pause: locking.Backoff{Base: 5 * time.Millisecond, Max: 15 * time.Millisecond}, Turn: 20 * time.Millisecond, Gap: 15 * time.Millisecond,
	}
}

// table is a driver.Driver.
type table struct {
	db               *sql.DB
	ttl              time.Duration
	takeOne, freeOne string
}

func newTable(db *sql.DB, ttl time.Duration) *table { return &table{db, ttl, takeOne, freeOne} }

// A free key that has a row is taken, and its lease released, by one statement, without the cost of a procedure. Each is a
// transaction of its own. If it changes no row, the procedures find out why. It changes none in a session without
// autocommit: there it would be the begin of a transaction.
const (
	// The TTL counts from before a wait for the row; so does Until. The driver returns the argument of LAST_INSERT_ID.
	takeOne = `
		UPDATE locks
		SET fence = LAST_INSERT_ID(GREATEST(fence + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))),
		    owner = x'%[2]x', expires = UTC_TIMESTAMP(6) + INTERVAL %[3]d MICROSECOND
		WHERE name = x'%[1]x' AND expires <= UTC_TIMESTAMP(6) AND @@autocommit`
	freeOne = `
		UPDATE locks SET owner = '', expires = '1970-01-01 00:00:00'
		WHERE name = x'%[1]x' AND owner = x'%[2]x' AND fence = %[3]d AND expires > UTC_TIMESTAMP(6) AND @@autocommit`
)

// Take takes all keys for owner, or none.
func (m *table) Take(ctx context.Context, keys []string, owner string, _ bool) (driver.Grant, error) {
	if len(keys) == 1 {
		taken, fence, err := m.update(ctx, fmt.Sprintf(m.takeOne, keys[0], owner, m.ttl.Microseconds()))
		if err != nil || taken {
			return driver.Grant{Fence: locking.Fence(fence)}, err
		}
	}
	fence, err := m.call(ctx, "locks_acquire", names(keys), owner, m.ttl.Microseconds())
	if err == nil && fence == 0 {
		err = locking.ErrBusy
	}
	return driver.Grant{Fence: locking.Fence(fence)}, err
}

// Keep begins the TTL again.
func (m *table) Keep(ctx context.Context, l locking.Lease) error {
	held, err := m.call(ctx, "locks_renew", names(l.Keys), l.Owner, int64(l.Fence), m.ttl.Microseconds())
	if err == nil && held == 0 {
		err = locking.ErrLost
	}
	return err
}

// Free frees the keys.
func (m *table) Free(ctx context.Context, l locking.Lease) error {
	if len(l.Keys) == 1 && l.Fence > 0 {
		freed, _, err := m.update(ctx, fmt.Sprintf(m.freeOne, l.Keys[0], l.Owner, int64(l.Fence)))
		if err != nil || freed {
			return err
		}
	}
	held, err := m.call(ctx, "locks_release", names(l.Keys), l.Owner, int64(l.Fence))
	if err == nil && held < int64(len(l.Keys)) {
		err = locking.ErrLost
	}
	return err
}

// update reports whether the statement changed a row, and returns the argument of its LAST_INSERT_ID.
func (m *table) update(ctx context.Context, statement string) (changed bool, id int64, err error) {
	err = m.request(ctx, func(conn *sql.Conn) error {
		result, err := conn.ExecContext(ctx, statement)
		if err != nil {
			return err
		}
		rows, err := result.RowsAffected()
		if err != nil || rows == 0 {
			return err
		}
		changed = true
		id, err = result.LastInsertId()
		return err
	})
	return changed, id, err
}

// call runs a procedure, and returns its result.
func (m *table) call(ctx context.Context, procedure, wanted, owner string, numbers ...int64) (result int64, err error) {
	statement := fmt.Sprintf("CALL %s(x'%x', x'%x'", procedure, wanted, owner)
	for _, n := range numbers {
		statement += fmt.Sprintf(", %d", n)
	}
	err = m.request(ctx, func(conn *sql.Conn) error {
		return conn.QueryRowContext(ctx, statement+")").Scan(&result)
	})
	return result, err
}

// request sends one statement, which is a transaction of its own.
//
// The text of a statement is complete: with placeholders the driver would prepare it first, in one
// more round trip, unless the DSN has interpolateParams. All text from outside is in hexadecimal, and so bytes to the server.
func (m *table) request(ctx context.Context, send func(*sql.Conn) error) error {
	conn, err := m.db.Conn(ctx)
	if err != nil {
		return driver.Unsent(err)
	}
	defer conn.Close()
	if err = send(conn); err != nil {
		discard(conn) // a procedure that was killed leaves its transaction, and row locks, behind
	}
	return classify(err)
}

// discard closes a connection, instead of returning it to the pool.
func discard(conn *sql.Conn) { _ = conn.Raw(func(any) error { return sqldriver.ErrBadConn }) }

// names joins keys, none of which contains NUL.
func names(keys []string) string { return strings.Join(keys, "\x00") }

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

// classify returns the error of a request as a driver.Driver must.
func classify(err error) error {
	var answer *mysql.MySQLError
	if errors.As(err, &answer) && !slices.Contains(retryable, answer.Number) {
		return driver.Refused(err)
	}
	return err
}
