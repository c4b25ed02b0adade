package inventory

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
	LockTimeout        = 2 * time.Second         // one row, one advisory lock, one unique key; also a free connection, a Redis lock
	StatementTimeout   = 4 * time.Second
	TransactionTimeout = 6 * time.Second // PostgreSQL 17 and later
	CommitTimeout      = 3 * time.Second // the write and its COMMIT, on a ctx that nobody else can end
	RequestTimeout     = 8 * time.Second // a whole request, for a server that falls silent: none of the above is heard then
)

var errSilent = fmt.Errorf("%w: inventory: not done after %v", locking.ErrBusy, RequestTimeout)

// bounded is ctx with an end, whatever the caller's is.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, RequestTimeout, errSilent)
}

// errURL repeats neither the URL nor what its parser says of it: any part of a
// malformed URL may be the password.
var errURL = errors.New("inventory: not a URL of PostgreSQL (not shown, since it may hold a password): want postgres://user:password@host:5432/database")

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
		return nil, errURL
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
		cfg.ConnConfig.ConnectTimeout = RequestTimeout // or a connection that hangs takes a place in the pool for two minutes
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
