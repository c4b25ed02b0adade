package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/inventory"
	"shop/locking/invariant"
	"shop/transfer"
	"shop/wallet"
)

// auditCmd counts violations of the invariants. The shop may run at the same time: every
// check is one statement, so it sees one snapshot.
type auditCmd struct{ stores }

// Run fails if an invariant is violated.
func (c *auditCmd) Run(ctx context.Context, out io.Writer) error {
	pool, err := c.open(ctx, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := checkMigrated(ctx, pool); err != nil {
		return err
	}
	wallets, err := c.openWallets(ctx)
	if err != nil {
		return err
	}
	defer disconnect(wallets)
	broken, all := 0, 0
	for _, flow := range flows {
		findings, err := flow.audit(ctx, pool, wallets)
		if err != nil {
			return err
		}
		all += len(findings)
		broken += printFindings(out, flow.name, flow.of.Invariants, findings)
	}
	if wallets == nil {
		fmt.Fprintln(out, "wallet     not checked: no --mongo-url (SHOP_MONGO_URL)")
	}
	if broken > 0 {
		return fmt.Errorf("audit: %d of %d invariants are broken", broken, all)
	}
	return nil
}

func printFindings(out io.Writer, flow string, list []invariant.Invariant, findings invariant.Findings) (broken int) {
	for _, code := range slices.Sorted(maps.Keys(findings)) {
		finding := findings[code]
		fmt.Fprintf(out, "%-9s  %-24s %d\n", flow, invariant.Find(list, code), finding.Count)
		for _, id := range finding.IDs {
			fmt.Fprintf(out, "             %s\n", id)
		}
		if finding.Count > 0 {
			broken++
		}
	}
	return broken
}

// flows are the lessons, with the audits of their stores.
var flows = []struct {
	name  string
	of    invariant.Set
	audit func(context.Context, *pgxpool.Pool, *mongo.Database) (invariant.Findings, error)
}{
	{"inventory", inventory.Invariants, func(ctx context.Context, pool *pgxpool.Pool, _ *mongo.Database) (invariant.Findings, error) {
		return invariant.Run(ctx, inventory.Invariants.Checks, invariant.SQL(pool))
	}},
	{"transfer", transfer.Invariants, func(ctx context.Context, pool *pgxpool.Pool, _ *mongo.Database) (invariant.Findings, error) {
		return invariant.Run(ctx, transfer.Invariants.Checks, invariant.SQL(pool))
	}},
	{"wallet", wallet.Invariants, func(ctx context.Context, _ *pgxpool.Pool, wallets *mongo.Database) (invariant.Findings, error) {
		if wallets == nil {
			return nil, nil
		}
		return invariant.Run(ctx, wallet.Invariants.Checks, wallet.Pipelines(wallets))
	}},
}

// auditNumbers runs the audit for GET /v1/audit. It fails if a configured MongoDB is down,
// because a partial audit would look like a complete one.
func (a *app) auditNumbers(ctx context.Context) (map[string]map[string]int64, error) {
	stock, err := inventory.Audit(ctx, a.pool)
	if err != nil {
		return nil, err
	}
	money, err := transfer.Audit(ctx, a.pool)
	numbers := map[string]map[string]int64{"inventory": stock, "transfer": money}
	if err != nil || a.wallets.db == nil {
		return numbers, err
	}
	if err := a.wallets.closed(); err != nil {
		return nil, err
	}
	numbers["wallet"], err = wallet.Audit(ctx, a.wallets.db)
	return numbers, err
}
