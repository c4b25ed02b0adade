package mysqllock

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"shop/locking"
)

var _ locking.Waiter = (*SessionStore)(nil)

// ErrNull reports that the lock is neither granted nor busy: the server could not execute GET_LOCK.
var ErrNull = errors.New("mysqllock: GET_LOCK returned NULL")

// SessionStore holds each lease as a named lock (GET_LOCK) of a session, on a connection
// for this lease alone. A lease has no TTL and no fence. It ends with its connection: by
// Release, with this process, or when the connection breaks, which Renew detects.
type SessionStore struct {
	db       *sql.DB
	space    string
	sessions *locking.Sessions[*session]
}

// answerTimeout bounds the wait for an answer, and that of TryAcquire for a connection.
const answerTimeout = time.Second

// sessionTurn is how long the requests of a process pass a session to each other: some tens of grants.
// Each turn costs three requests more.
const sessionTurn = 5 * time.Millisecond

// NewSessions makes a SessionStore. Stores exclude each other if their db lead to one server, whatever
// the database, and their space is the same. The lock is Name(space + key): end a space with a character that
// no key begins with.
//
// Each lease occupies a connection, as one waiter of each key does, and Renew needs one more: give the Store a db of
// its own, with enough of them. See the doc of the package for the settings of its DSN. The
// caller closes db, after the Store.
func NewSessions(db *sql.DB, space string) (*SessionStore, error) {
	if err := locking.CheckClient(db); err != nil {
		return nil, fmt.Errorf("mysqllock: %w", err)
	}
	s := &SessionStore{db: db, space: space}
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
// the server, which grants in the order of arrival too. The waiters of one process pass a session to each other
// for 5 ms, before other processes have their turn (locking.Handoff).
//
// If ctx ends first, the error matches ctx.Err(), and locking.ErrBusy too if the request was in
// the queue, which it has left within a second.
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
	x := &session{store: s, conn: conn, lock: Name(s.space + key), mark: rand.Text()}
	free, err := x.get(ctx, 0)
	for err == nil && !free && wait {
		free, err = x.wait(ctx)
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

// connect takes a connection out of the pool. A waiter waits for it as long as for the key:
// leases and waiters of other keys may occupy all of them.
func (s *SessionStore) connect(ctx context.Context, wait bool) (*sql.Conn, error) {
	var cancel context.CancelFunc
	if wait {
		ctx, cancel = s.sessions.UntilClose(ctx)
	} else {
		ctx, cancel = context.WithTimeout(ctx, answerTimeout)
	}
	defer cancel()
	return s.db.Conn(ctx)
}

// Renew returns locking.ErrLost, finally, if the server no longer has the lease's session
// with its lock. It asks on another connection, so that an answer that is lost costs
// nothing. After any other error the lease may be held or not. Until stays zero.
func (s *SessionStore) Renew(ctx context.Context, l locking.Lease) (_ locking.Lease, err error) {
	defer describe(&err, "renew", l.Keys)
	return l, s.sessions.Renew(ctx, l)
}

// Release frees the key. It returns locking.ErrLost if the server had closed the connection before. After
// any other error the session is ended, which frees the key as well.
func (s *SessionStore) Release(ctx context.Context, l locking.Lease) (err error) {
	defer describe(&err, "release", l.Keys)
	return s.sessions.Release(ctx, l)
}

// Close ends the sessions of all leases that are still held, and the waiters, which get ErrClosed.
func (s *SessionStore) Close() { s.sessions.Close() }

// Name returns the name under which GET_LOCK locks a key: SHA-256 in hexadecimal, 64 characters, the
// longest that MySQL takes. No letter has two cases in it, and no space ends it. It is the same in every
// process and version, for programs that lock without this package.
func Name(key string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(key))) }

// session is a database session with one lock.
type session struct {
	store *SessionStore
	conn  *sql.Conn
	lock  string
	mark  string // a second lock, whose name is random: it identifies the session
}

// get takes the lock, for which the server waits for some seconds at most, and then the mark: AND leaves
// out its right side if the left is false.
func (x *session) get(ctx context.Context, wait time.Duration) (free bool, err error) {
	return ask(ctx, wait+answerTimeout, x.conn, `SELECT GET_LOCK('%s', %d) = 1 AND GET_LOCK('%s', 0) = 1`, x.lock, wait/time.Second, x.mark)
}

// wait waits until the session has the lock, or for a day. The end of ctx closes the connection, which
// the server notices within a second.
func (x *session) wait(ctx context.Context) (free bool, err error) {
	ctx, cancel := x.store.sessions.UntilClose(ctx)
	defer cancel()
	free, err = x.get(ctx, 24*time.Hour)
	if err != nil && ctx.Err() != nil {
		return false, fmt.Errorf("%w: %w", locking.ErrBusy, ctx.Err())
	}
	return free, err
}

// Renew is Renew of a locking.Session. Both names are held by one session. Its number alone would not do: it is
// given again after a restart.
func (x *session) Renew(ctx context.Context) error {
	conn, err := x.store.connect(ctx, false)
	if err != nil {
		return locking.Unsent(ctx, err)
	}
	defer conn.Close()
	return has(ask(ctx, answerTimeout, conn, `SELECT COALESCE(IS_USED_LOCK('%s') = IS_USED_LOCK('%s'), 0)`, x.lock, x.mark))
}

// Check is Check of a locking.Session.
func (x *session) Check(ctx context.Context) error {
	if !x.open(ctx) {
		return locking.ErrLost
	}
	return has(ask(ctx, answerTimeout, x.conn, `SELECT COALESCE(IS_USED_LOCK('%s') = CONNECTION_ID(), 0)`, x.lock))
}

// Unlock is Unlock of a locking.Session.
func (x *session) Unlock(ctx context.Context) error {
	if !x.open(ctx) {
		x.End()
		return locking.ErrLost
	}
	released, err := ask(ctx, answerTimeout, x.conn, `SELECT COALESCE(RELEASE_LOCK('%s') = 1 AND RELEASE_LOCK('%s') = 1, 0)`, x.lock, x.mark)
	x.end(released)
	return has(released, err)
}

// End is End of a locking.Session.
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
		if c, ok := conn.(driver.SessionResetter); ok {
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
	if err = classify(ctx, err); err == nil && !answer.Valid {
		err = ErrNull
	}
	return answer.Bool, err
}
