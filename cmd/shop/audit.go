package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

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
	findings, err := loadtest.Audit(ctx, pool, loadtest.InventoryChecks)
	if err != nil {
		return err
	}
	broken := 0
	for _, invariant := range slices.Sorted(maps.Keys(findings)) {
		finding := findings[invariant]
		fmt.Fprintf(out, "inventory  %-8s %d\n", invariant, finding.Count)
		for _, id := range finding.IDs {
			fmt.Fprintf(out, "             %s\n", id)
		}
		if finding.Count > 0 {
			broken++
		}
	}
	if broken > 0 {
		return fmt.Errorf("audit: %d of %d invariants are broken", broken, len(findings))
	}
	return nil
}
