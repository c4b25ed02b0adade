package pglock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
)

var _ locking.Waiter = (*SessionStore)(nil)

// SessionStore holds each lease as an advisory lock of a database session, on a connection
// for this lease alone. A lease has no TTL and no fence. It ends with its connection: by
// Release, with this process, or when the connection breaks, which Renew detects.
type SessionStore struct {
	pool     *pgxpool.Pool
	space    string
	sessions *locking.Sessions[*session]
}

// answerTimeout bounds the wait for an answer, and that of TryAcquire for a connection.
const answerTimeout = time.Second

// sessionTurn is how long the requests of a process pass a session to each other: some tens of grants.
// Each turn costs three requests more.
const sessionTurn = 5 * time.Millisecond

// NewSessions makes a SessionStore. Stores exclude each other if their pools lead to one
// database, and their space is the same. The lock is Hash(space + key): end a space with a character that
// no key begins with.
//
// Each lease occupies a connection, as one waiter of each key does, and Renew needs one more: give the Store a
// pool of its own that is large enough. The pool must not connect through a pooler in
// transaction mode, where a lock and its release would be in different sessions. Its statement_timeout
// and lock_timeout must be 0: they would end a wait, and with it the place in the queue. So must idle_session_timeout
// (PostgreSQL 14): it would end each lease, because Renew asks on another connection. Its hooks must leave the
// prepared statements alone. The requests of a free key have no spans of its QueryTracer, but events of a
// locking.Observer. The caller closes the pool, after the Store.
func NewSessions(pool *pgxpool.Pool, space string) (*SessionStore, error) {
	if err := locking.CheckClient(pool); err != nil {
		return nil, fmt.Errorf("pglock: %w", err)
	}
	s := &SessionStore{pool: pool, space: space}
	s.sessions = locking.NewSessions(sessionTurn, ErrClosed, s.take)
	return s, nil
}

// TryAcquire takes the key. It returns locking.ErrBusy if another holder has it. A request
// without an answer ends its session, and with it what it may have taken.
func (s *SessionStore) TryAcquire(ctx context.Context, keys ...string) (_ locking.Lease, err error) {
	defer describe(&err, "acquire", keys)
	return s.sessions.Acquire(ctx, keys, false)
}

// Acquire waits for the key, in this process in the order of arrival. The first waiter of each process waits in
// PostgreSQL, which grants in the order of arrival too. The waiters of one process pass a session to each other
// for 5 ms, before other processes have their turn (locking.Handoff).
//
// If ctx ends first, the error matches ctx.Err(), and locking.ErrBusy too if the request was in
// the queue, which it has left.
func (s *SessionStore) Acquire(ctx context.Context, keys ...string) (_ locking.Lease, err error) {
	defer describe(&err, "acquire", keys)
	return s.sessions.Acquire(ctx, keys, true)
}

// take requests the lock in a session of its own.
func (s *SessionStore) take(ctx context.Context, key string, wait bool) (*session, error) {
	conn, err := s.connect(ctx, wait)
	if err != nil {
		return nil, locking.Unsent(ctx, err)
	}
	x := &session{store: s, conn: conn, lock: Hash(s.space + key)}
	var free bool
	if err = x.identify(ctx); err == nil {
		free, err = x.call(ctx, x.try)
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

// connect takes a connection out of the pool. A waiter waits for it as long as for the key:
// leases and waiters of other keys may occupy all of them. Close ends that wait. If a connection is idle, there is none, and
// a ctx that Close ends too would be for nothing.
func (s *SessionStore) connect(ctx context.Context, wait bool) (*pgxpool.Conn, error) {
	cancel := func() {}
	switch {
	case !wait:
		ctx, cancel = context.WithTimeout(ctx, answerTimeout)
	case s.pool.Stat().IdleConns() == 0:
		ctx, cancel = s.sessions.UntilClose(ctx)
	}
	defer cancel()
	return s.pool.Acquire(ctx)
}

// Renew returns locking.ErrLost, finally, if the server no longer has the lease's session
// with its lock. It asks on another connection, so that an answer that is lost costs
// nothing. After any other error the lease may be held or not. Until stays zero.
func (s *SessionStore) Renew(ctx context.Context, l locking.Lease) (_ locking.Lease, err error) {
	defer describe(&err, "renew", l.Keys)
	return l, s.sessions.Renew(ctx, l)
}

// Release frees the key. It returns locking.ErrLost if the session had ended before. After any
// other error the session is ended, which frees the key as well.
func (s *SessionStore) Release(ctx context.Context, l locking.Lease) (err error) {
	defer describe(&err, "release", l.Keys)
	return s.sessions.Release(ctx, l)
}

// Close ends the sessions of all leases that are still held, and the waiters, which get ErrClosed.
func (s *SessionStore) Close() { s.sessions.Close() }

// session is a database session with one lock.
type session struct {
	store *SessionStore
	conn  *pgxpool.Conn
	lock  int64
	*backend
}

// backend is the server's process of a connection, with the statements of a free key.
type backend struct {
	pid         int32
	start       time.Time // pids are reused
	try, unlock *pgconn.StatementDescription
	arguments   [][]byte // one, in binary
}

// identify asks the server once for each connection: the answer takes as long as several locks.
func (x *session) identify(ctx context.Context) (err error) {
	const name = "pglock"
	known := x.conn.Conn().PgConn().CustomData()
	if is, asked := known[name].(*backend); asked {
		x.backend = is
		return nil
	}
	x.backend = &backend{arguments: [][]byte{make([]byte, 8)}}
	limit(x.conn, answerTimeout)
	err = x.conn.QueryRow(ctx, `SELECT pid, backend_start FROM pg_stat_get_activity(pg_backend_pid())`).Scan(&x.pid, &x.start)
	if err == nil {
		x.try, err = x.prepare(ctx, `SELECT 1 WHERE NOT pg_try_advisory_lock($1)`)
	}
	if err == nil {
		x.unlock, err = x.prepare(ctx, `SELECT 1 WHERE NOT pg_advisory_unlock($1)`)
	}
	if err == nil {
		known[name] = x.backend
	}
	return classify(ctx, err)
}

// prepare prepares a statement for call, unless the pool is set to prepare none.
func (x *session) prepare(ctx context.Context, sql string) (*pgconn.StatementDescription, error) {
	conn := x.conn.Conn()
	if conn.Config().DefaultQueryExecMode != pgx.QueryExecModeCacheStatement {
		return &pgconn.StatementDescription{SQL: sql}, nil
	}
	return conn.Prepare(ctx, sql, sql)
}

// call sends a statement with the lock as its argument. It reports whether the server has done what the statement is for:
// then the answer has no row. Rows cost a copy. A prepared statement goes past pgx.Conn, which would look it up and encode the
// argument each time.
func (x *session) call(ctx context.Context, statement *pgconn.StatementDescription) (done bool, err error) {
	if statement.Name == "" {
		row, err := ask(ctx, x.conn, statement.SQL, x.lock)
		return err == nil && !row, err
	}
	limit(x.conn, answerTimeout)
	binary.BigEndian.PutUint64(x.arguments[0], uint64(x.lock))
	answer, err := x.conn.Conn().PgConn().ExecStatement(ctx, statement, x.arguments, inBinary, inBinary).Close()
	return err == nil && answer.RowsAffected() == 0, classify(ctx, err)
}

var inBinary = []int16{pgx.BinaryFormatCode}

// wait waits until the session has the lock. The end of ctx cancels the statement at the server. It
// closes the connection too, unless the pool has a CancelRequestContextWatcherHandler.
func (x *session) wait(ctx context.Context) error {
	ctx, cancel := x.store.sessions.UntilClose(ctx)
	defer cancel()
	limit(x.conn, 0)
	_, err := x.conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, x.lock)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", locking.ErrBusy, ctx.Err())
	}
	return classify(ctx, busy(err))
}

// Renew is Renew of a locking.Session.
func (x *session) Renew(ctx context.Context) error {
	conn, err := x.store.connect(ctx, false)
	if err != nil {
		return locking.Unsent(ctx, err)
	}
	defer giveBack(conn)
	held, err := ask(ctx, conn, `
		SELECT FROM pg_locks JOIN pg_stat_get_activity($1) AS session USING (pid)
		WHERE backend_start = $2 AND granted
		AND locktype = 'advisory' AND objsubid = 1 AND (classid::bigint << 32 | objid::bigint) = $3`, x.pid, x.start, x.lock)
	if err == nil && !held {
		return locking.ErrLost
	}
	return err
}

// Check is Check of a locking.Session. A session that has not ended has its lock.
func (x *session) Check(ctx context.Context) error {
	_, err := ask(ctx, x.conn, `SELECT`)
	return ended(err)
}

// Unlock is Unlock of a locking.Session.
func (x *session) Unlock(ctx context.Context) error {
	unlocked, err := x.call(ctx, x.unlock)
	x.end(unlocked)
	if err == nil && !unlocked {
		return locking.ErrLost
	}
	return ended(err)
}

// End is End of a locking.Session.
func (x *session) End() { x.end(false) }

// ended returns locking.ErrLost for the answer of the session's own connection that the server has ended it.
func ended(err error) error {
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok && answer.SeverityUnlocalized == "FATAL" {
		return locking.ErrLost
	}
	return err
}

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
	giveBack(x.conn)
}

// ask sends a statement, and reports whether the answer has a row.
func ask(ctx context.Context, conn *pgxpool.Conn, sql string, args ...any) (yes bool, err error) {
	limit(conn, answerTimeout)
	answer, err := conn.Exec(ctx, sql, args...)
	return err == nil && answer.RowsAffected() > 0, classify(ctx, err)
}

// limit makes a connection wait for answers for d at most; 0 is no limit. Each request sets its own, and giveBack removes
// it. Such a deadline is cheaper than a context with one. A statement is short: sending it does not wait.
func limit(conn *pgxpool.Conn, d time.Duration) {
	var deadline time.Time
	if d > 0 {
		deadline = time.Now().Add(d)
	}
	_ = conn.Conn().PgConn().Conn().SetReadDeadline(deadline) // a connection that is closed says so to the statement
}

// giveBack returns a connection to the pool.
func giveBack(conn *pgxpool.Conn) {
	if !conn.Conn().IsClosed() { // else pgx may be closing it, with a deadline of its own
		limit(conn, 0)
	}
	conn.Release()
}
