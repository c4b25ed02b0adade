package pgtx

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
)

// Migrations is the table idempotency_keys, as plain SQL with goose's comments,
// for the tool that migrates the rest of the schema.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// migrateKey is the advisory lock of Migrate.
const migrateKey = 0x70677478 // "pgtx"

// Migrate creates the table in the first schema of conn's search_path, where no
// other tool does. It may run again, and several processes may run it at once.
func Migrate(ctx context.Context, conn *pgx.Conn) error {
	files, err := fs.Glob(Migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// IF NOT EXISTS is no lock: two at once would both find nothing there.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, migrateKey); err != nil {
			return err
		}
		for _, file := range files {
			sql, err := Migrations.ReadFile(file)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, string(sql)); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("pgtx: migrate: %w", err)
	}
	return nil
}
