package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"shop/loadtest"
)

// auditCmd counts what violates an invariant, from outside, while the shop may
// be running: every check is one statement, and so sees one moment.
type auditCmd struct{ database }

// Run fails if anything is broken.
func (c *auditCmd) Run(ctx context.Context, out io.Writer) error {
	pool, err := c.open(ctx, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := checkMigrated(ctx, pool); err != nil {
		return err
	}
	broken, all := 0, 0
	for _, flow := range flows {
		findings, err := loadtest.Audit(ctx, pool, flow.checks)
		if err != nil {
			return err
		}
		for _, invariant := range slices.Sorted(maps.Keys(findings)) {
			finding := findings[invariant]
			fmt.Fprintf(out, "%-9s  %-8s %d\n", flow.name, invariant, finding.Count)
			for _, id := range finding.IDs {
				fmt.Fprintf(out, "             %s\n", id)
			}
			if finding.Count > 0 {
				broken++
			}
		}
		all += len(findings)
	}
	if broken > 0 {
		return fmt.Errorf("audit: %d of %d invariants are broken", broken, all)
	}
	return nil
}

// flows are the lessons, with the checks of what they leave in the tables.
var flows = []struct {
	name   string
	checks []loadtest.Check
}{
	{"inventory", loadtest.InventoryChecks},
	{"transfer", loadtest.TransferChecks},
}

// auditNumbers is the audit as GET /v1/audit tells it.
func auditNumbers(ctx context.Context, pool *pgxpool.Pool) (map[string]map[string]int64, error) {
	stock, err := loadtest.AuditInventory(ctx, pool)
	if err != nil {
		return nil, err
	}
	money, err := loadtest.AuditTransfer(ctx, pool)
	return map[string]map[string]int64{"inventory": stock, "transfer": money}, err
}
