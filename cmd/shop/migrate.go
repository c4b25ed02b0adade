// SPDX-License-Identifier: MIT

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/locking/idempotency/pgtx"
	"shop/transfer"
	"shop/wallet"
)

// migrateCmd is not part of serve: replicas restart at any moment, and tables should
// change only when an operator decides.
type migrateCmd struct {
	stores  `embed:""`
	GrantTo string `env:"SHOP_GRANT_TO" placeholder:"ROLE" help:"Also let this role of PostgreSQL serve, run the batch and audit, and take away its other privileges on the tables. Connect the replicas as this role: it cannot alter a table, or change an entry of the ledger. Repeat it after an upgrade."`
}

func (c *migrateCmd) Run(ctx context.Context, out io.Writer) error {
	err := migrateAll(ctx, c.PostgresURL)
	if errors.Is(err, pgtx.ErrPooler) {
		return &usageError{err}
	}
	if err != nil {
		return err
	}
	if c.GrantTo != "" {
		if err := c.grant(ctx); err != nil {
			return err
		}
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

//go:embed grants.sql
var grants string

// grant runs grants.sql for the role GrantTo, in one transaction.
func (c *migrateCmd) grant(ctx context.Context) error {
	pool, err := c.open(ctx, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	var schema string
	var owns bool // itself, as a member of the owner, or as a superuser
	err = pool.QueryRow(ctx, `
		SELECT current_schema(), pg_has_role(r.oid, t.relowner, 'MEMBER')
		FROM pg_roles r, pg_class t
		WHERE r.rolname = $1 AND t.oid = 'ledger_entries'::regclass`, c.GrantTo).Scan(&schema, &owns)
	role := pgx.Identifier{c.GrantTo}.Sanitize()
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return &usageError{fmt.Errorf("--grant-to %s: PostgreSQL has no such role; make it: CREATE ROLE %s LOGIN", c.GrantTo, role)}
	case err != nil:
		return err
	case owns:
		return &usageError{fmt.Errorf("--grant-to %s: owns the tables, or may act as their owner: name a role that is no superuser and no member of the owner", role)}
	}
	named := strings.NewReplacer(`"server"`, role, `"schema"`, pgx.Identifier{schema}.Sanitize()).Replace(grants)
	_, err = pool.Exec(ctx, named, pgx.QueryExecModeSimpleProtocol) // several statements, which are one transaction
	return err
}

// indexWait bounds a statement of MongoDB that may build an index of millions of documents.
const indexWait = time.Hour

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
	ctx, cancel := context.WithTimeout(ctx, indexWait) // in place of the client's limit, which is that of a request
	defer cancel()
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
