// SPDX-License-Identifier: MIT

package pgtx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrPooler reports that a pooler such as PgBouncer takes away what a session must keep.
var ErrPooler = errors.New("pgtx: a pooler is between this program and PostgreSQL")

// Check connects, and returns an error that matches ErrPooler if the limits of PoolConfig do not reach the sessions
// of the pool, or if statements that are prepared there may be executed in another session. A program calls it once,
// at its start.
func Check(ctx context.Context, pool *pgxpool.Pool) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	pooled, err := Pooled(ctx, conn.Conn())
	if err != nil || !pooled {
		return err
	}
	config := pool.Config()
	if mode := config.ConnConfig.DefaultQueryExecMode; mode == pgx.QueryExecModeCacheStatement && !strings.Contains(config.ConnString(), "default_query_exec_mode") {
		return fmt.Errorf("%w: it may run a statement in another session than the one that has prepared it: add default_query_exec_mode=exec to the URL, or default_query_exec_mode=cache_statement if it tracks prepared statements (PgBouncer from 1.21 with max_prepared_statements) or pools whole sessions", ErrPooler)
	}
	var dropped []string
	for name, weak := range map[string][]string{
		"lock_timeout": {"0"}, "statement_timeout": {"0"}, "idle_in_transaction_session_timeout": {"0"}, "synchronous_commit": {"off", "local"}, "client_min_messages": {"error"},
	} {
		var value string // with which the session of the server began
		err := conn.QueryRow(ctx, `SELECT reset_val FROM pg_settings WHERE name = $1`, pgx.QueryExecModeExec, name).Scan(&value)
		if err != nil {
			return err
		}
		if asked := config.ConnConfig.RuntimeParams[name]; slices.Contains(weak, value) && asked != value {
			dropped = append(dropped, fmt.Sprintf("SET %s = '%s'", name, cmp.Or(asked, map[string]string{"client_min_messages": "warning"}[name], "on")))
		}
	}
	if len(dropped) == 0 {
		return nil
	}
	slices.Sort(dropped)
	role := pgx.Identifier{config.ConnConfig.User}.Sanitize()
	return fmt.Errorf("%w: it drops settings of the start-up packet, without which a request may wait for ever, or an answer be lost in a crash: ALTER ROLE %s %s; then let the pooler connect anew (RECONNECT)",
		ErrPooler, role, strings.Join(dropped, "; ALTER ROLE "+role+" "))
}

// Pooled reports whether a pooler answers instead of PostgreSQL: the session is not the one that the connection began.
func Pooled(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var session uint32
	err := conn.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeExec).Scan(&session)
	return session != conn.PgConn().PID(), err
}
