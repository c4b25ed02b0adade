// SPDX-License-Identifier: MIT

package pgtx

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// The limits of every wait. Their order matters: the server ends a stopped transaction
// (idle) before the requests that wait for its rows time out (lock), and a statement
// that takes several locks is bounded as a whole.
const (
	IdleTimeout      = 1500 * time.Millisecond // between two statements of a transaction
	LockTimeout      = 2 * time.Second         // one row, advisory lock or unique key; also a free connection of the pool
	StatementTimeout = 4 * time.Second
	CommitTimeout    = 3 * time.Second // the last round trip, with COMMIT
	Limit            = 8 * time.Second // a whole Run: the server's limits do not help if it stops answering
)

// Config of a DB. Pool is required.
type Config struct {
	Pool *pgxpool.Pool // made with PoolConfig
	// Guards are names of CHECK constraints that refuse a write only if the decision
	// was made on data that has changed since. The transaction is then retried.
	Guards []string
	// Limit bounds one Run or Read, but not a COMMIT that was sent. 0: the constant Limit
	Limit time.Duration
	// Count receives events with the label of their Op; nil: nothing is counted.
	Count func(event Event, label string)
	// Failpoint is called at each step, for tests; nil in production. If it is set,
	// statements are sent before each step, and not pipelined beyond it.
	Failpoint func(ctx context.Context, step Step, label string)
}

// New checks cfg. It does no I/O.
func New(cfg Config) (*DB, error) {
	if cfg.Pool == nil {
		return nil, errors.New("pgtx: Config.Pool is missing")
	}
	if cfg.Pool.Config().ConnConfig.RuntimeParams["lock_timeout"] == "" {
		return nil, errors.New("pgtx: Config.Pool has no lock_timeout: make the pool with PoolConfig")
	}
	cfg.Limit = cmp.Or(cfg.Limit, Limit)
	if cfg.Count == nil {
		cfg.Count = func(Event, string) {}
	}
	return &DB{cfg}, nil
}

// ErrURL repeats neither the URL nor the parser's error: any part of a malformed URL may
// be the password.
var ErrURL = errors.New("pgtx: not a URL of PostgreSQL (not shown, since it may hold a password): want postgres://user:password@host:5432/database")

// PoolConfig parses databaseURL and bounds every wait at the server.
//
// The limits are session defaults, and also apply to statements outside of a transaction. They are sent in the start-up
// packet; a setting in the URL takes precedence. A pooler in transaction mode drops them, or refuses the connection:
// Check returns an error that says what to do. There is no transaction_timeout: a server before PostgreSQL 17 refuses
// it in the start-up packet, and SET would reach other clients of a pooler. IdleTimeout ends the transaction of a
// client that has stopped, and Limit ends every other one.
//
// Each new connection raises synchronous_commit from off or local to on, unless the URL sets it (durable.go). A program
// that replaces OnNotice, AfterConnect or PrepareConn calls those of the result.
func PoolConfig(databaseURL string) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, ErrURL
	}
	for name, d := range limits {
		if cfg.ConnConfig.RuntimeParams[name] == "" {
			cfg.ConnConfig.RuntimeParams[name] = milliseconds(d)
		}
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = StatementTimeout // otherwise a hanging connection occupies the pool for two minutes
	}
	cfg.AfterConnect, cfg.PrepareConn = afterConnect, prepareConn
	keepAnswers(cfg)
	return cfg, nil
}

// limits are the session defaults of PoolConfig.
var limits = map[string]time.Duration{
	"lock_timeout":                        LockTimeout,
	"statement_timeout":                   StatementTimeout,
	"idle_in_transaction_session_timeout": IdleTimeout,
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
