package transfer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
)

// The bounds of every wait. Their order matters: whoever waits behind a
// stopped holder (idle) gets the row before its own patience (lock) ends, and a
// statement that takes several locks one after the other is bounded as a whole.
const (
	IdleTimeout        = 1500 * time.Millisecond // a transaction that stopped talking: its locks are taken away
	LockTimeout        = 2 * time.Second         // one row, one unique key; also a free connection, the lock service
	StatementTimeout   = 4 * time.Second
	TransactionTimeout = 6 * time.Second // PostgreSQL 17 and later
	CommitTimeout      = 3 * time.Second // the write and its COMMIT, on a ctx that nobody else can end
	AnswerTimeout      = 5 * time.Second // one answer of PostgreSQL, by our own clock: the server's bounds are worth nothing when it is silent
)

// errSilent ends the wait for a PostgreSQL that does not answer, where no COMMIT
// is on its way: nothing was done.
var errSilent = fmt.Errorf("%w: no answer from PostgreSQL for %v", locking.ErrBusy, AnswerTimeout)

// answerIn bounds the wait for one answer. A server that is alive ends it sooner.
func answerIn(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, AnswerTimeout, errSilent)
}

// endOf is why the exchange on ctx failed: the end of ctx if it has ended, else err.
func endOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// PoolConfig parses databaseURL and bounds every wait at the server.
//
// The settings are session defaults in the start-up packet, not SET LOCAL in
// each transaction: they cost nothing per purchase, and they also hold for the
// statements outside a transaction. What the URL says wins. Behind a pooler
// that drops start-up parameters (PgBouncer in transaction mode), set them with
// ALTER ROLE as well.
func PoolConfig(databaseURL string) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		// Neither the URL nor what its parser says of it: any part of a malformed one may be the password.
		return nil, errors.New("transfer: not a URL of PostgreSQL (not shown, since it may hold a password): want postgres://user:password@host:5432/database")
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
		cfg.ConnConfig.ConnectTimeout = AnswerTimeout // or a connection that hangs takes a place in the pool for two minutes
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
