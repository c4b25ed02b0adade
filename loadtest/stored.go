package loadtest

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Stored is an effect that the database shows when all replicas are gone.
type Stored struct {
	Client [16]byte
	Key    string          // the idempotency key
	Answer json.RawMessage // what its client is told of it, as far as a model needs that
	Order  int64           // its place: behind that of each write of the same object that came before it
}

// StoredSQL reads effects: sql returns the client, the key, the answer, and the place.
func StoredSQL(ctx context.Context, conn *pgx.Conn, sql string) ([]Stored, error) {
	rows, _ := conn.Query(ctx, sql)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Stored])
	if err != nil {
		return nil, fmt.Errorf("audit: effects: %w", err)
	}
	return append([]Stored{}, list...), nil // not nil: the database was asked
}
