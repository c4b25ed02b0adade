// SPDX-License-Identifier: MIT

package held

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Postgres has the leases of pglock in the table locks. (Advisory locks are in the view pg_locks.)
type Postgres struct{ Pool *pgxpool.Pool }

// List returns the locks in the order of their keys.
func (s Postgres) List(ctx context.Context) ([]Lock, error) {
	rows, err := s.Pool.Query(ctx, `
		SELECT key, owner, fence, expires - clock_timestamp(), 0
		FROM locks
		WHERE expires > clock_timestamp()
		ORDER BY key`)
	if err == nil {
		var locks []Lock
		if locks, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Lock]); err == nil {
			return locks, nil
		}
	}
	return nil, fmt.Errorf("held: list the locks in PostgreSQL: %w", err)
}

// End ends the lease. The fence stays in its row.
func (s Postgres) End(ctx context.Context, key string) (ended bool, err error) {
	tag, err := s.Pool.Exec(ctx, `UPDATE locks SET owner = '', expires = '-infinity' WHERE key = $1 AND expires > clock_timestamp()`, key)
	if err != nil {
		return false, fmt.Errorf("held: end %q in PostgreSQL: %w", key, err)
	}
	return tag.RowsAffected() > 0, nil
}
