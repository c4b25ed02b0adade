// SPDX-License-Identifier: MIT

package pgtx

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// afterConnect does no I/O: the ctx of a pool has no deadline.
func afterConnect(_ context.Context, conn *pgx.Conn) error {
	types := conn.TypeMap() // for the modes that do not ask the server for types
	for _, ids := range []any{[]uuid.UUID{}, [][16]byte{}} {
		types.RegisterDefaultPgType(ids, "_uuid")
	}
	types.RegisterDefaultPgType(map[string]string{}, "jsonb")
	types.RegisterDefaultPgType([]map[string]string{}, "_jsonb")
	conn.PgConn().CustomData()[connectedAt] = time.Now()
	return nil
}

const (
	connectedAt  = "shop/connected-at"
	readOnlyKept = time.Second
)

// prepareConn discards a session that PostgreSQL made read-only, after a second: the server may accept writes
// again, from new sessions only. Until it does, reads need not connect more often.
func prepareConn(_ context.Context, conn *pgx.Conn) (usable bool, err error) {
	at, _ := conn.PgConn().CustomData()[connectedAt].(time.Time)
	return !readOnly(conn) || time.Since(at) < readOnlyKept, nil
}

// readOnly reports whether the session refuses writes: that of a standby, or by a setting.
func readOnly(conn *pgx.Conn) bool {
	for _, name := range []string{"in_hot_standby", "default_transaction_read_only"} { // reported by PostgreSQL 14 and later
		if conn.PgConn().ParameterStatus(name) == "on" {
			return true
		}
	}
	return false
}
