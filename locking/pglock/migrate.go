// SPDX-License-Identifier: MIT

package pglock

import (
	"context"
	"embed"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Migrations holds the tables and functions of this package as plain SQL with goose's
// comments, for the tool that migrates the rest of the schema.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// Migrate runs all migrations in the first schema of conn's search_path, for programs
// without a migration tool. It may run repeatedly, and in several processes at once.
func Migrate(ctx context.Context, conn *pgx.Conn) error {
	files, err := Migrations.ReadDir("migrations") // in the order of their names
	for _, file := range files {
		var sql []byte
		if sql, err = Migrations.ReadFile("migrations/" + file.Name()); err == nil {
			_, err = conn.Exec(ctx, string(sql)) // one message, so one transaction
		}
		if err != nil {
			return fmt.Errorf("pglock: migrate %s: %w", file.Name(), err)
		}
	}
	return err
}
