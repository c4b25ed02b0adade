package pgtx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
)

// The limits of every wait. Their order matters: the server ends a transaction
// that has stopped (idle) before the requests that wait for its rows give up
// (lock), and a statement that takes several locks is bounded as a whole.
const (
	IdleTimeout        = 1500 * time.Millisecond // between two statements of a transaction
	LockTimeout        = 2 * time.Second         // one row, advisory lock or unique key; also a free connection of the pool
	StatementTimeout   = 4 * time.Second
	TransactionTimeout = 6 * time.Second // PostgreSQL 17 and later
	CommitTimeout      = 3 * time.Second // the last round trip, with COMMIT
	Limit              = 8 * time.Second // a whole Run, for a server that falls silent: none of the above is heard then
)

// Config of a DB. Pool is required.
type Config struct {
	Pool *pgxpool.Pool // made with PoolConfig
	// Guards are names of CHECK constraints that refuse a write only if the
	// decision was made on data that has changed since: the transaction runs again.
	Guards []string
	// Limit bounds one Run or Read, but not a COMMIT on its way. 0: the constant Limit
	Limit time.Duration
	// Count receives events with the label of their Op; nil: nothing is counted.
	Count func(event Event, label string)
	// Failpoint is called at each step, for tests; nil in production. While it is
	// set, statements are sent before each step, and not pipelined beyond it.
	Failpoint func(ctx context.Context, step Step, label string)
}

// Event is something worth counting.
type Event string

// The events.
const (
	Retried      Event = "retried"       // a transaction ran again: serialization failure, deadlock, lost connection, ErrRetry
	GuardTripped Event = "guard_tripped" // a constraint of Config.Guards refused a write
	Ambiguous    Event = "ambiguous"     // a COMMIT was sent and not answered
	Resolved     Event = "resolved"      // … and was decided afterwards
)

// ErrUnreachable is a PostgreSQL that has no free connection, or does not answer:
// the next request would fail like this one. It matches locking.ErrBusy.
var ErrUnreachable = fmt.Errorf("%w: PostgreSQL gives no connection or no answer", locking.ErrBusy)

// Step is a point of a transaction at which a test may stop, slow or kill the process.
type Step string

// The steps, in order. AfterGuard is for bodies to call, with Tx.Step.
const (
	AfterAcquire Step = "after-acquire" // a connection is there, nothing was sent
	AfterBegin   Step = "after-begin"
	AfterGuard   Step = "after-guard" // what the decision needs was read, and locked or guarded
	AfterKey     Step = "after-key"
	BeforeCommit Step = "before-commit"
	AfterCommit  Step = "after-commit"
)

// DB runs transactions on a pool. It is safe for concurrent use.
type DB struct {
	pool   *pgxpool.Pool
	guards []string
	limit  time.Duration
	count  func(Event, string)
	hook   func(context.Context, Step, string)
}

// New checks cfg. It does no I/O.
func New(cfg Config) (*DB, error) {
	if cfg.Pool == nil {
		return nil, errors.New("pgtx: Config.Pool is missing")
	}
	if cfg.Pool.Config().ConnConfig.RuntimeParams["lock_timeout"] == "" {
		return nil, errors.New("pgtx: the waits of Config.Pool are not bounded: make it with PoolConfig")
	}
	db := &DB{pool: cfg.Pool, guards: cfg.Guards, limit: cmp.Or(cfg.Limit, Limit), count: cfg.Count, hook: cfg.Failpoint}
	if db.count == nil {
		db.count = func(Event, string) {}
	}
	return db, nil
}

// ErrURL repeats neither the URL nor what its parser says of it: any part of a
// malformed URL may be the password.
var ErrURL = errors.New("pgtx: not a URL of PostgreSQL (not shown, since it may hold a password): want postgres://user:password@host:5432/database")

// PoolConfig parses databaseURL and bounds every wait at the server.
//
// The settings are session defaults in the start-up packet. They cost nothing for
// each transaction, and they hold for statements outside of one as well. What the
// URL says wins. Behind a pooler that drops start-up parameters (PgBouncer in
// transaction mode), set them with ALTER ROLE too.
func PoolConfig(databaseURL string) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, ErrURL
	}
	for name, d := range map[string]time.Duration{
		"lock_timeout":                        LockTimeout,
		"statement_timeout":                   StatementTimeout,
		"idle_in_transaction_session_timeout": IdleTimeout,
	} {
		if cfg.ConnConfig.RuntimeParams[name] == "" {
			cfg.ConnConfig.RuntimeParams[name] = milliseconds(d)
		}
	}
	cfg.AfterConnect = boundTransactions
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = StatementTimeout // or a connection that hangs takes a place in the pool for two minutes
	}
	return cfg, nil
}

// boundTransactions sets what an older server would refuse in the start-up packet.
func boundTransactions(ctx context.Context, conn *pgx.Conn) error {
	version, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), ".")
	if n, err := strconv.Atoi(version); err != nil || n < 17 {
		return nil
	}
	_, err := conn.Exec(ctx, "SET transaction_timeout = "+milliseconds(TransactionTimeout))
	return err
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Bound is ctx with the limit of one Run or Read, for a request of several.
func (db *DB) Bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, db.limit, fmt.Errorf("%w: pgtx: not done after %v", ErrUnreachable, db.limit))
}

// connection waits for a free one no longer than for a lock.
func (db *DB) connection(ctx context.Context) (*pgxpool.Conn, error) {
	bounded, cancel := context.WithTimeout(ctx, LockTimeout)
	defer cancel()
	conn, err := db.pool.Acquire(bounded)
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case bounded.Err() != nil:
		return nil, fmt.Errorf("%w: waited %v", ErrUnreachable, LockTimeout)
	default:
		return nil, fmt.Errorf("%w: %w", errLostConn, err)
	}
}

// Read runs fn on a connection outside of a transaction, and again if that
// connection turns out to be broken: fn must be safe to run twice. An error of
// which Unavailable is true is returned as locking.ErrBusy.
func (db *DB) Read(ctx context.Context, fn func(ctx context.Context, conn *pgx.Conn) error) (err error) {
	ctx, cancel := db.Bound(ctx)
	defer cancel()
	for try := range attemptsMax {
		if err := pause(ctx, try); err != nil {
			return err
		}
		if err = db.readOnce(ctx, fn); !errors.Is(err, errLostConn) {
			return err
		}
	}
	return exhausted(err)
}

func (db *DB) readOnce(ctx context.Context, fn func(context.Context, *pgx.Conn) error) error {
	conn, err := db.connection(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	switch err = fn(ctx, conn.Conn()); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case conn.Conn().IsClosed():
		return fmt.Errorf("%w: %w", errLostConn, err)
	case Unavailable(err):
		return fmt.Errorf("%w: %w", locking.ErrBusy, err)
	}
	return err
}

// Unavailable reports that err is about the state of PostgreSQL or of the network,
// and not about the statement: another request may not meet it.
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
