package inventory

import (
	"context"
	"embed"

	"shop/locking/idempotency/pgtx"
	"shop/locking/migrate"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrate brings the schema of databaseURL (its search_path) up to date. Replicas may
// call it at the same moment. 00002 fills the table of keys, which is made before it.
func Migrate(ctx context.Context, databaseURL string) error {
	return migrate.Up(ctx, databaseURL, migrations, "inventory_goose_version", pgtx.Migrate)
}
