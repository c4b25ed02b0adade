package inventory

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib" // goose uses database/sql
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"shop/locking/idempotency/pgtx"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrate brings the schema of databaseURL (its search_path) up to date. Replicas
// may call it at the same moment: goose holds a session advisory lock meanwhile.
func Migrate(ctx context.Context, databaseURL string) error {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return pgtx.ErrURL
	}
	if err := migrateKeys(ctx, config); err != nil {
		return fmt.Errorf("inventory: migrate: %w", err)
	}
	db := stdlib.OpenDB(*config)
	defer db.Close()
	var schema string
	if err := db.QueryRowContext(ctx, `SELECT current_schema()`).Scan(&schema); err != nil {
		return fmt.Errorf("inventory: migrate: no schema to write to: %w", err)
	}
	provider, err := newProvider(db, schema)
	if err != nil {
		return fmt.Errorf("inventory: migrate: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("inventory: migrate: %w", err)
	}
	return nil
}

// migrateKeys makes the table of idempotency keys, which 00002 fills.
func migrateKeys(ctx context.Context, config *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return pgtx.Migrate(ctx, conn)
}

// newProvider locks what it migrates, this package's tables in this schema, and
// keeps its own version table: other packages migrate the same database.
func newProvider(db *sql.DB, schema string) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker(
		lock.WithLockID(lockKey("inventory/migrate/"+schema)),
		lock.WithLockTimeout(1, 60), // asks again each second, for a minute
	)
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName("inventory_goose_version"),
		goose.WithSessionLocker(locker),
		goose.WithDisableGlobalRegistry(true),
	)
}
