package pgtx

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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

// New checks cfg. It does no I/O.
func New(cfg Config) (*DB, error) {
	if cfg.Pool == nil {
		return nil, errors.New("pgtx: Config.Pool is missing")
	}
	if cfg.Pool.Config().ConnConfig.RuntimeParams["lock_timeout"] == "" {
		return nil, errors.New("pgtx: the waits of Config.Pool are not bounded: make it with PoolConfig")
	}
	cfg.Limit = cmp.Or(cfg.Limit, Limit)
	if cfg.Count == nil {
		cfg.Count = func(Event, string) {}
	}
	return &DB{cfg}, nil
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
