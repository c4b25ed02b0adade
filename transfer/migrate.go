package transfer

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/binary"
	"fmt"
	"io/fs"

	_ "github.com/jackc/pgx/v5/stdlib" // goose speaks database/sql
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrate brings the schema of databaseURL (its search_path) up to date. Replicas
// may call it at the same moment: goose holds a session advisory lock meanwhile.
func Migrate(ctx context.Context, databaseURL string) error {
	db, err := sql.Open("pgx", databaseURL)
	if err != nil {
		return fmt.Errorf("transfer: migrate: %w", err)
	}
	defer db.Close()
	var schema string
	if err := db.QueryRowContext(ctx, `SELECT current_schema()`).Scan(&schema); err != nil {
		return fmt.Errorf("transfer: migrate: no schema to write to: %w", err)
	}
	provider, err := newProvider(db, schema)
	if err != nil {
		return fmt.Errorf("transfer: migrate: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("transfer: migrate: %w", err)
	}
	return nil
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
