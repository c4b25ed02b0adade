// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"embed"

	"shop/locking/idempotency/pgtx"
	"shop/locking/migrate"
	"shop/locking/pglock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrate brings the schema of databaseURL (its search_path) up to date. Replicas may
// call it concurrently. pgtx.Migrate runs first: 00002 fills the key table that it creates.
// Package rollup takes its lock in the table of package pglock.
func Migrate(ctx context.Context, databaseURL string) error {
	return migrate.Up(ctx, databaseURL, migrations, "inventory_goose_version", pgtx.Migrate, pglock.Migrate)
}
