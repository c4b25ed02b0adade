package transfer

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/binary"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib" // goose speaks database/sql
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
	db := stdlib.OpenDB(*config)
	defer db.Close()
	if err := migrate(ctx, config, db); err != nil {
		return fmt.Errorf("transfer: migrate: %w", err)
	}
	return nil
}

func migrate(ctx context.Context, config *pgx.ConnConfig, db *sql.DB) error {
	var schema string
	if err := db.QueryRowContext(ctx, `SELECT current_schema()`).Scan(&schema); err != nil {
		return fmt.Errorf("no schema to write to: %w", err)
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := pgtx.Migrate(ctx, conn); err != nil { // the table that 00002 fills
		return err
	}
	provider, err := newProvider(db, schema)
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

// newProvider locks what it migrates, this package's tables in this schema, and
// keeps its own version table: other packages migrate the same database.
func newProvider(db *sql.DB, schema string) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker(
		lock.WithLockID(lockKey("transfer/migrate/"+schema)),
		lock.WithLockTimeout(1, 60), // asks again each second, for a minute
	)
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName("transfer_goose_version"),
		goose.WithSessionLocker(locker),
		goose.WithDisableGlobalRegistry(true),
	)
}

// lockKey is the number that stands for a name among advisory locks.
func lockKey(name string) int64 {
	sum := sha256.Sum256([]byte(name))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}
