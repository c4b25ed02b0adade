// SPDX-License-Identifier: MIT

package pgtx

import (
	"context"
	"embed"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking/idempotency"
)

// Migrations holds the table idempotency_keys as plain SQL with goose's comments,
// for the tool that migrates the rest of the schema.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// Migrate creates the table, or completes it, in the first schema of conn's search_path, for programs
// without a migration tool. It may run repeatedly, and in several processes at once.
func Migrate(ctx context.Context, conn *pgx.Conn) error {
	files, err := Migrations.ReadDir("migrations") // in the order of their names
	for _, file := range files {
		var sql []byte
		if sql, err = Migrations.ReadFile("migrations/" + file.Name()); err == nil {
			_, err = conn.Exec(ctx, string(sql)) // one message, so one transaction
		}
		if err != nil {
			return fmt.Errorf("pgtx: migrate: %s: %w", file.Name(), err)
		}
	}
	return err
}

// CountKeys counts the stored keys of a client, up to limit. A million keys take some tenths of a second, whether or not the
// table was vacuumed or analyzed after they came: the planner chooses between the index and the table.
func (db *DB) CountKeys(ctx context.Context, client uuid.UUID, limit int64) (n int64, err error) {
	err = db.Read(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `
			SELECT count(*)
			FROM (
				SELECT
				FROM idempotency_keys
				WHERE client_id = $1
				LIMIT $2) AS stored`, client, limit).Scan(&n)
	})
	return n, err
}

// HasKey reports whether a reply is stored under the key, be it for this request or for another one. As with Lookup, no reply
// proves nothing.
func (db *DB) HasKey(ctx context.Context, req idempotency.Request) (bool, error) {
	var found bool
	err := db.Read(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `
			SELECT EXISTS (
				SELECT
				FROM idempotency_keys
				WHERE client_id = $1 AND key = $2)`, req.Client, req.Key).Scan(&found)
	})
	return found, err
}

// KeysKept is the shortest time for which a reply must be replayable.
const KeysKept = 24 * time.Hour

// Purge deletes the keys older than olderThan, at least KeysKept, and returns how many
// it deleted. A key that is sent again after that is a new request. Each statement
// deletes a thousand keys, so that none takes long and no request waits for it.
func Purge(ctx context.Context, pool *pgxpool.Pool, olderThan time.Duration) (purged int64, err error) {
	if olderThan < KeysKept {
		return 0, fmt.Errorf("pgtx: purge: keys are kept at least %v", KeysKept)
	}
	for {
		n, err := purgePage(ctx, pool, olderThan)
		if err != nil {
			return purged, fmt.Errorf("pgtx: purge keys: %w", err)
		}
		if purged += n; n == 0 {
			return purged, nil
		}
	}
}

func purgePage(ctx context.Context, pool *pgxpool.Pool, olderThan time.Duration) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, Limit) // statement_timeout does not help if the server does not answer
	defer cancel()
	// SKIP LOCKED: two purges share the work instead of waiting for each other.
	tag, err := pool.Exec(ctx, `
		DELETE FROM idempotency_keys
		WHERE (client_id, key) IN (
			SELECT client_id, key
			FROM idempotency_keys
			WHERE created_at < now() - $1::interval
			ORDER BY created_at
			LIMIT 1000
			FOR UPDATE SKIP LOCKED)`, olderThan)
	return tag.RowsAffected(), err
}
