// SPDX-License-Identifier: MIT

package judge

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Stored is an effect that the audit finds in the database.
type Stored struct {
	Client [16]byte
	Key    string          // the idempotency key
	Answer json.RawMessage // the answer to its client, as far as a model needs it
	Order  int64           // its place: greater than that of each earlier write of the same object
}

// StoredSQL reads effects. sql returns the client, the key, the answer and the place.
func StoredSQL(ctx context.Context, conn *pgx.Conn, sql string) ([]Stored, error) {
	rows, _ := conn.Query(ctx, sql)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Stored])
	if err != nil {
		return nil, fmt.Errorf("audit: effects: %w", err)
	}
	return append([]Stored{}, list...), nil // not nil: the database was asked
}
