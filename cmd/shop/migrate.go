package main

import (
	"context"
	"fmt"
	"io"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/transfer"
)

// migrateCmd is a step of its own, and not part of serve: replicas start and
// restart at any moment, and the one that changes tables should be chosen.
type migrateCmd struct{ database }

func (c *migrateCmd) Run(ctx context.Context, out io.Writer) error {
	if err := migrateAll(ctx, c.PostgresURL); err != nil {
		return err
	}
	fmt.Fprintln(out, "the tables are up to date")
	return nil
}

// migrateAll brings the tables of every package up to date.
func migrateAll(ctx context.Context, databaseURL string) error {
	for _, migrate := range []func(context.Context, string) error{inventory.Migrate, transfer.Migrate, api.Migrate} {
		if err := migrate(ctx, databaseURL); err != nil {
			return err
		}
	}
	return nil
}
