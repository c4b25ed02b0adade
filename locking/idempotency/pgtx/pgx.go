// SPDX-License-Identifier: MIT

package pgtx

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ErrOwned is returned by Commit and Rollback of what Tx.Pgx returns: Run ends the transaction.
var ErrOwned = errors.New("pgtx: Run ends this transaction: return from the body")

// Pgx returns the transaction as a pgx.Tx, for repositories and generated code (such as sqlc's). It sends what is queued. Each
// statement is a round trip of its own, and an error of it must be returned by the body, as it is or wrapped.
//
// Begin makes a savepoint, as that of pgx does. LargeObjects is not supported.
func (t *Tx) Pgx(ctx context.Context) (pgx.Tx, error) {
	if !t.began() {
		return nil, errors.New("pgtx: the transaction has not begun")
	}
	if err := t.Flush(ctx); err != nil {
		return nil, err
	}
	t.pgx = true
	return &pgxTx{connection: t.conn}, nil
}

// connection has the statements of a pgx.Conn.
type connection = pgx.Conn

// pgxTx is a running transaction, or a savepoint in it. Its statements are those of the connection.
type pgxTx struct {
	*connection
	depth int // of savepoints; 0: the transaction
	over  bool
}

func (x *pgxTx) Conn() *pgx.Conn                { return x.connection }
func (x *pgxTx) LargeObjects() pgx.LargeObjects { return pgx.LargeObjects{} }

// Begin makes a savepoint.
func (x *pgxTx) Begin(ctx context.Context) (pgx.Tx, error) {
	nested := &pgxTx{connection: x.connection, depth: x.depth + 1}
	_, err := x.connection.Exec(ctx, "savepoint "+nested.name())
	return nested, err
}

// Commit releases a savepoint.
func (x *pgxTx) Commit(ctx context.Context) error { return x.end(ctx, "release savepoint "+x.name()) }

// Rollback undoes what followed a savepoint.
func (x *pgxTx) Rollback(ctx context.Context) error {
	return x.end(ctx, "rollback to savepoint "+x.name()+"; release savepoint "+x.name())
}

func (x *pgxTx) end(ctx context.Context, sql string) error {
	switch {
	case x.depth == 0:
		return ErrOwned
	case x.over:
		return pgx.ErrTxClosed
	}
	x.over = true
	_, err := x.connection.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return err
}

func (x *pgxTx) name() string { return fmt.Sprintf("pgtx_%d", x.depth) }
