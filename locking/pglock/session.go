// SPDX-License-Identifier: MIT

package pglock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/driver"
)

// answerTimeout bounds the wait for an answer, and that of TryAcquire for a connection.
const answerTimeout = time.Second

// NewSessions makes a Store whose leases are advisory locks of database sessions, each on a connection
// for this lease alone. A lease has no TTL and no fence. It ends with its connection: by
// Release, with this process, or when the connection breaks, which Renew detects.
//
// Stores exclude each other if their pools lead to one database, and they have the same Prefix. The lock is Hash(Prefix + key).
// Waiters are granted a key in the order of arrival: in this process, and among the processes in that of the server.
//
// Each lease occupies a connection, as one waiter of each key does, and Renew needs one more: give the Store a
// pool of its own that is large enough. The pool must not connect through a pooler in
// transaction mode, where a lock and its release would be in different sessions. Its statement_timeout
// and lock_timeout must be 0: they would end a wait, and with it the place in the queue. So must idle_session_timeout
// (PostgreSQL 14): it would end each lease, because Renew asks on another connection. The caller closes the pool, after the
// Store. Close ends the sessions of all leases that are still held.
func NewSessions(pool *pgxpool.Pool, o Options) (*driver.Store, error) {
	if err := locking.CheckClient(pool); err != nil {
		return nil, fmt.Errorf("pglock: %w", err)
	}
	return driver.New(newSessionsOf(pool), sessionSettings(o))
}

func sessionSettings(o Options) driver.Options {
	return driver.Options{Name: "pglock", Prefix: o.Prefix, OneKey: true, Queues: true, Limit: answerTimeout}
}

func newSessionsOf(pool *pgxpool.Pool) *driver.Sessions[*session] {
	return &driver.Sessions[*session]{Open: func(ctx context.Context, key string, wait bool) (*session, error) {
		return openSession(ctx, pool, Hash(key), wait)
	}}
}

// openSession requests the lock in a session of its own. A waiter waits for a connection as long as for the key: leases and
// waiters of other keys may occupy all of them.
func openSession(ctx context.Context, pool *pgxpool.Pool, lock int64, wait bool) (*session, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, driver.Unsent(err)
	}
	x := &session{pool: pool, conn: conn, lock: lock}
	var free bool
	if err = x.identify(ctx); err == nil {
		free, err = ask(ctx, conn, `SELECT WHERE pg_try_advisory_lock($1)`, lock)
	}
	switch {
	case err != nil:
		x.end(pgconn.SafeToRetry(err)) // it was not sent
		return nil, err
	case free:
		return x, nil
	case !wait:
		x.end(true)
		return nil, locking.ErrBusy
	}
	if err = x.wait(ctx); err != nil {
		x.abandon()
		return nil, err
	}
	return x, nil
}

// session is a database session with one lock.
type session struct {
	pool  *pgxpool.Pool
	conn  *pgxpool.Conn
	lock  int64
	pid   int32     // of the server's process
	start time.Time // pids are reused
}

// identify asks the server for its process, once for each connection.
func (x *session) identify(ctx context.Context) error {
	type process struct {
		pid   int32
		start time.Time
	}
	const name = "pglock"
	known := x.conn.Conn().PgConn().CustomData()
	p, asked := known[name].(process)
	if !asked {
		limited, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		err := x.conn.QueryRow(limited, `SELECT pid, backend_start FROM pg_stat_get_activity(pg_backend_pid())`).Scan(&p.pid, &p.start)
		if err != nil {
			return classify(err)
		}
		known[name] = p
	}
	x.pid, x.start = p.pid, p.start
	return nil
}

// wait waits until the session has the lock. The end of ctx cancels the statement at the server. It
// closes the connection too, unless the pool has a CancelRequestContextWatcherHandler.
func (x *session) wait(ctx context.Context) error {
	_, err := x.conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, x.lock)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", locking.ErrBusy, ctx.Err())
	}
	return classify(busy(err))
}

// Keep asks on another connection whether the server has the session with its lock.
func (x *session) Keep(ctx context.Context) error {
	conn, err := x.pool.Acquire(ctx)
	if err != nil {
		return driver.Unsent(err)
	}
	defer conn.Release()
	held, err := ask(ctx, conn, `
		SELECT FROM pg_locks JOIN pg_stat_get_activity($1) AS session USING (pid)
		WHERE backend_start = $2 AND granted
		AND locktype = 'advisory' AND objsubid = 1 AND (classid::bigint << 32 | objid::bigint) = $3`, x.pid, x.start, x.lock)
	if err == nil && !held {
		return locking.ErrLost
	}
	return err
}

// Free releases the lock.
func (x *session) Free(ctx context.Context) error {
	unlocked, err := ask(ctx, x.conn, `SELECT WHERE pg_advisory_unlock($1)`, x.lock)
	x.end(unlocked)
	var answer *pgconn.PgError
	answered := errors.As(err, &answer)
	if err == nil && !unlocked || answered && answer.SeverityUnlocalized == "FATAL" { // the server has ended the session
		return locking.ErrLost
	}
	return err
}

// End ends the session.
func (x *session) End() { x.end(false) }

// abandon returns the connection after an error. A statement that the server canceled may have
// taken the lock before.
func (x *session) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	_, err := x.conn.Exec(ctx, `SELECT pg_advisory_unlock_all()`)
	x.end(err == nil)
}

// end returns the connection to the pool if it is clean, without a lock, and closes it otherwise.
func (x *session) end(clean bool) {
	if !clean {
		ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
		defer cancel()
		_ = x.conn.Conn().Close(ctx)
	}
	x.conn.Release()
}

// ask sends a statement, and reports whether the answer has a row.
func ask(ctx context.Context, conn *pgxpool.Conn, sql string, args ...any) (yes bool, err error) {
	limited, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answer, err := conn.Exec(limited, sql, args...)
	return err == nil && answer.RowsAffected() > 0, classify(err)
}
