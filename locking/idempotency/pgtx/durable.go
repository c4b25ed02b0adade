// SPDX-License-Identifier: MIT

package pgtx

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
)

// This file keeps one rule: answered means stored. A reply that Lookup, Run or RunAll returns survives a crash of the
// primary and, with synchronous_standby_names, its loss.
//
// COMMIT of the transaction that stores the reply waits for the disk and for the synchronous standby. Three ways lead to a
// reply that did not wait, since PostgreSQL commits on its own disk first, and the wait comes after:
//
//   - The wait ends early, and the row becomes visible: a CancelRequest (pgx sends one when a ctx ends), pg_cancel_backend,
//     pg_terminate_backend, a restart of the primary. A request that finds the row has not waited. It commits a record of
//     its own before it returns the reply (barrier): the standby confirms in the order of the log. The age of the row
//     proves nothing, since a standby may have been away for longer.
//   - COMMIT is answered all the same, after a WARNING. Then the outcome is unknown (queueCommit).
//   - synchronous_commit is off or local. Each new connection raises it to on (keepAnswers).

// errUnconfirmed is the error of a request whose reply is committed at the primary and at no synchronous standby yet. Each
// repetition gets it, until a standby has the reply.
var errUnconfirmed = fmt.Errorf("%w: the reply is committed, and no synchronous standby has confirmed it", locking.ErrOutcomeUnknown)

// barrier writes a record to the log, and so makes its transaction wait for the standby. A transaction that only reads does
// not wait, nor does one that only has an xid. Without synchronous standbys it writes nothing.
const barrier = `
	SELECT pg_logical_emit_message(true, 'pgtx', '')
	WHERE current_setting('synchronous_standby_names') <> ''`

// confirm returns nil when the synchronous standby has all that this connection has read: the barrier must run at the server
// that answered the read. It waits no longer than for a COMMIT.
func confirm(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, CommitTimeout)
	defer cancel()
	forgetWarning(conn)
	_, err := conn.Exec(ctx, barrier)
	if err == nil {
		err = warning(conn)
	}
	if err != nil {
		return fmt.Errorf("%w: %v", errUnconfirmed, err)
	}
	return nil
}

// queueCommit queues COMMIT. tag is that of its answer. err is the WARNING that came with it: PostgreSQL has committed, and
// has given up the wait for the standby.
func (t *Tx) queueCommit() (tag *pgconn.CommandTag, warned *error) {
	tag, warned = new(pgconn.CommandTag), new(error)
	t.queue = append(t.queue, &pgx.QueuedQuery{SQL: "commit", Fn: func(br pgx.BatchResults) (err error) {
		forgetWarning(t.conn) // those of the statements before
		*tag, err = br.Exec()
		*warned = warning(t.conn)
		return err
	}})
	return tag, warned
}

// warningKey is that of the last WARNING in the data of a connection.
const warningKey = "pgtx.warning"

// keepWarning is the OnNotice of a connection.
func keepWarning(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" {
		conn.CustomData()[warningKey] = fmt.Errorf("%s: %s (SQLSTATE %s)", n.Severity, n.Message, n.Code)
	}
}

func forgetWarning(conn *pgx.Conn) { delete(conn.PgConn().CustomData(), warningKey) }

// warning returns the last WARNING since forgetWarning.
func warning(conn *pgx.Conn) error {
	err, _ := conn.PgConn().CustomData()[warningKey].(error)
	return err
}

// keepAnswers lets the connections of cfg keep the rule. It lowers nothing: remote_apply stays, and what the URL sets.
func keepAnswers(cfg *pgxpool.Config) {
	sql, before := tell, cfg.AfterConnect
	if cfg.ConnConfig.RuntimeParams["synchronous_commit"] == "" {
		sql += waitForDisk
	}
	cfg.ConnConfig.OnNotice = keepWarning
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, StatementTimeout) // the ctx of a pool has no limit
		defer cancel()
		if before != nil {
			if err := before(ctx, conn); err != nil {
				return err
			}
		}
		_, err := conn.Exec(ctx, sql)
		return err
	}
}

const (
	// tell lets the server send the WARNING of a COMMIT. A setting of the session is not changed by a later reload of the
	// server's.
	tell = `
		SELECT set_config('client_min_messages', CASE value WHEN 'error' THEN 'warning' ELSE value END, false)
		FROM current_setting('client_min_messages') AS value;`

	// waitForDisk makes COMMIT wait for the disk and the synchronous standbys, also after the server's setting was lowered to
	// let commits go on without them.
	waitForDisk = `
		SELECT set_config('synchronous_commit', CASE WHEN value IN ('off', 'local') THEN 'on' ELSE value END, false)
		FROM current_setting('synchronous_commit') AS value;`
)
