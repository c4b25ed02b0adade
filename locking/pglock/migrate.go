package pglock

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
)

// Migrations are this package's tables, for whatever brings your schema up to
// date: plain SQL, in order of name, and goose's comments in it.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// migrateKey is the advisory lock of Migrate: any number that has no other use.
const migrateKey = 0x70676c6f636b // "pglock"

// Migrate runs Migrations on the first schema of conn's search_path, for programs
// without a migration tool. Each of them may run again.
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
		return fmt.Errorf("pglock: migrate: %w", err)
	}
	return nil
}
