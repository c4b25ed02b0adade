package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/transfer"
	"shop/wallet"
)

// migrateCmd is not part of serve: replicas restart at any moment, and tables should
// change only when an operator decides.
type migrateCmd struct{ stores }

func (c *migrateCmd) Run(ctx context.Context, out io.Writer) error {
	if err := migrateAll(ctx, c.PostgresURL); err != nil {
		return err
	}
	fmt.Fprintln(out, "the tables are up to date")
	if c.MongoURL == "" {
		fmt.Fprintln(out, "no --mongo-url (SHOP_MONGO_URL): there are no wallets")
		return nil
	}
	if err := migrateWallets(ctx, c.mongoSettings); err != nil {
		return err
	}
	fmt.Fprintln(out, "the collections are up to date")
	return nil
}

// migrateWallets does for MongoDB what migrateAll does for PostgreSQL.
func migrateWallets(ctx context.Context, s mongoSettings) error {
	db, err := s.connect()
	if err != nil {
		return err
	}
	defer disconnect(db)
	if err := checkCollections(ctx, db); err != nil && !errors.Is(err, errNoCollections) {
		return unusable(err)
	}
	return wallet.Migrate(ctx, db)
}

// migrateAll brings the tables of every package that has any up to date.
func migrateAll(ctx context.Context, databaseURL string) error {
	for _, migrate := range []func(context.Context, string) error{inventory.Migrate, transfer.Migrate, api.Migrate} {
		if err := migrate(ctx, databaseURL); err != nil {
			return err
		}
	}
	return nil
}
