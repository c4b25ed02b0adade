// SPDX-License-Identifier: MIT

package mysqllock

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"strings"
)

// Migrations holds the tables and procedures of this package as plain SQL with goose's
// comments, for the tool that migrates the rest of the schema.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// Migrate runs all migrations in db's database, for programs without a migration tool. It may run
// repeatedly, and in several processes at once. It needs CREATE and CREATE ROUTINE.
func Migrate(ctx context.Context, db *sql.DB) error {
	files, err := Migrations.ReadDir("migrations") // in the order of their names
	for _, file := range files {
		var text []byte
		if text, err = Migrations.ReadFile("migrations/" + file.Name()); err == nil {
			err = run(ctx, db, string(text))
		}
		if err != nil {
			return fmt.Errorf("mysqllock: migrate %s: %w", file.Name(), err)
		}
	}
	return err
}

// run sends the statements of a migration one by one: a connection refuses several at once, unless its
// DSN has multiStatements. Each is between two of goose's comments.
func run(ctx context.Context, db *sql.DB, migration string) error {
	for _, rest := range strings.Split(migration, "-- +goose StatementBegin\n")[1:] {
		statement, _, _ := strings.Cut(rest, "-- +goose StatementEnd")
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
