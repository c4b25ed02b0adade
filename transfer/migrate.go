// SPDX-License-Identifier: MIT

package transfer

import (
	"context"
	"embed"

	"shop/locking/idempotency/pgtx"
	"shop/locking/migrate"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrate brings the schema of databaseURL (its search_path) up to date. Replicas may call it
// at the same moment. pgtx.Migrate runs first: it makes the table of keys that 00002 fills.
func Migrate(ctx context.Context, databaseURL string) error {
	return migrate.Up(ctx, databaseURL, migrations, "transfer_goose_version", pgtx.Migrate)
}
