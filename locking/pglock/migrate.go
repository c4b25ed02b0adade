package pglock

import (
	"context"
	"embed"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Migrations holds the table guards as plain SQL with goose's comments, for the tool that
// migrates the rest of the schema.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// Migrate creates the table in the first schema of conn's search_path, for programs
// without a migration tool. It may run repeatedly, and in several processes at once.
func Migrate(ctx context.Context, conn *pgx.Conn) error {
	sql, err := Migrations.ReadFile("migrations/00001_guards.sql")
	if err == nil {
		_, err = conn.Exec(ctx, string(sql)) // one message, so one transaction
	}
	if err != nil {
		return fmt.Errorf("pglock: migrate: %w", err)
	}
	return nil
}
