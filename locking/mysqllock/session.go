// SPDX-License-Identifier: MIT

package mysqllock

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"time"

	"shop/locking"
	"shop/locking/driver"
)

// ErrNull reports that the lock is neither granted nor busy: the server could not execute GET_LOCK.
var ErrNull = errors.New("mysqllock: GET_LOCK returned NULL")

// answerTimeout bounds the wait for an answer, and that of TryAcquire for a connection.
const answerTimeout = time.Second

// NewSessions makes a Store whose leases are named locks (GET_LOCK) of sessions, each on a connection
// for this lease alone. A lease has no TTL and no fence. It ends with its connection: by
// Release, with this process, or when the connection breaks, which Renew detects.
//
// Stores exclude each other if their db lead to one server, whatever the database, and they have the same Prefix. The lock is
// Name(Prefix + key). Waiters are granted a key in the order of arrival: in this process, and among the processes in that of
// the server.
//
// Each lease occupies a connection, as one waiter of each key does, and Renew needs one more: give the Store a db of
// its own, with enough of them. See the doc of the package for the settings of its DSN. The
// caller closes db, after the Store. Close ends the sessions of all leases that are still held.
func NewSessions(db *sql.DB, o Options) (*driver.Store, error) {
	if err := locking.CheckClient(db); err != nil {
		return nil, fmt.Errorf("mysqllock: %w", err)
	}
	return driver.New(newSessionsOf(db), sessionSettings(o))
}

func sessionSettings(o Options) driver.Options {
	return driver.Options{Name: "mysqllock", Prefix: o.Prefix, OneKey: true, Queues: true, Limit: answerTimeout}
}

func newSessionsOf(db *sql.DB) *driver.Sessions[*session] {
	return &driver.Sessions[*session]{Open: func(ctx context.Context, key string, wait bool) (*session, error) {
		return openSession(ctx, db, Name(key), wait)
	}}
}

// openSession requests the lock in a session of its own.
func openSession(ctx context.Context, db *sql.DB, lock string, wait bool) (*session, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, driver.Unsent(err)
	}
	x := &session{db: db, conn: conn, lock: lock, mark: rand.Text()}
	free, err := x.get(ctx, 0)
	for err == nil && !free && wait {
		if free, err = x.get(ctx, 24*time.Hour); err != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", locking.ErrBusy, ctx.Err()) // the server notices the closed connection within a second
		}
	}
	switch {
	case err != nil:
		x.end(false)
		return nil, err
	case !free:
		x.end(true)
		return nil, locking.ErrBusy
	}
	return x, nil
}

// Name returns the name under which GET_LOCK locks a key: SHA-256 in hexadecimal, 64 characters, the
// longest that MySQL takes. No letter has two cases in it, and no space ends it. It is the same in every
// process and version, for programs that lock without this package.
func Name(key string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(key))) }

// session is a database session with one lock.
type session struct {
	db   *sql.DB
	conn *sql.Conn
	lock string
	mark string // a second lock, whose name is random: it identifies the session
}

// get takes the lock, for which the server waits for some seconds at most, and then the mark: AND leaves
// out its right side if the left is false.
func (x *session) get(ctx context.Context, wait time.Duration) (free bool, err error) {
	return ask(ctx, wait+answerTimeout, x.conn, `SELECT GET_LOCK('%s', %d) = 1 AND GET_LOCK('%s', 0) = 1`, x.lock, wait/time.Second, x.mark)
}

// Keep asks whether both names are held by one session. Its number alone would not do: it is
// given again after a restart.
func (x *session) Keep(ctx context.Context) error {
	conn, err := x.db.Conn(ctx)
	if err != nil {
		return driver.Unsent(err)
	}
	defer conn.Close()
	return has(ask(ctx, answerTimeout, conn, `SELECT COALESCE(IS_USED_LOCK('%s') = IS_USED_LOCK('%s'), 0)`, x.lock, x.mark))
}

// Free releases both names.
func (x *session) Free(ctx context.Context) error {
	if !x.open(ctx) {
		x.End()
		return locking.ErrLost
	}
	released, err := ask(ctx, answerTimeout, x.conn, `SELECT COALESCE(RELEASE_LOCK('%s') = 1 AND RELEASE_LOCK('%s') = 1, 0)`, x.lock, x.mark)
	x.end(released)
	return has(released, err)
}

// End ends the session.
func (x *session) End() { x.end(false) }

// has returns locking.ErrLost if the session has no lock.
func has(lock bool, err error) error {
	if err == nil && !lock {
		return locking.ErrLost
	}
	return err
}

// open reports whether the server has not closed the connection. It sends nothing: the driver looks at
// what has arrived.
func (x *session) open(ctx context.Context) bool {
	return x.conn.Raw(func(conn any) error {
		if c, ok := conn.(sqldriver.SessionResetter); ok {
			return c.ResetSession(ctx)
		}
		return nil
	}) == nil
}

// end returns the connection to the pool if it is clean, without a lock, and closes it otherwise.
func (x *session) end(clean bool) {
	if !clean {
		discard(x.conn)
	}
	_ = x.conn.Close()
}

// ask reads the answer to a statement: 1, 0 or NULL. It waits for limit at most.
func ask(ctx context.Context, limit time.Duration, conn *sql.Conn, statement string, names ...any) (yes bool, err error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var answer sql.NullBool
	err = conn.QueryRowContext(limited, fmt.Sprintf(statement, names...)).Scan(&answer)
	if err = classify(err); err == nil && !answer.Valid {
		err = driver.Refused(ErrNull)
	}
	return answer.Bool, err
}
