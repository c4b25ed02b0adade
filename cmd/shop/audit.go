// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/inventory"
	"shop/locking/invariant"
	"shop/transfer"
	"shop/wallet"
)

// auditCmd counts violations of the invariants. The shop may run at the same time: the checks of PostgreSQL read one
// snapshot, and each check of MongoDB one of its own.
type auditCmd struct {
	stores
	Limit time.Duration `env:"SHOP_AUDIT_LIMIT" default:"15m" help:"How long one check may take. Each reads whole tables, so the limits of a request do not apply. MongoDB itself keeps what a check reads for 5 minutes (minSnapshotHistoryWindowInSeconds)."`
}

// Validate checks the settings before the command connects.
func (c *auditCmd) Validate() error {
	if c.Limit < time.Second {
		return errors.New("--limit must be at least 1s")
	}
	return c.stores.Validate()
}

// Run fails if an invariant is violated. Its progress goes to stderr.
func (c *auditCmd) Run(ctx context.Context, std stdio) error {
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
	a := audit{std: std, limit: c.Limit}
	err = snapshot(ctx, pool, c.Limit, func(tx pgx.Tx) error {
		query := invariant.SQL[pgx.Rows](tx)
		if err := a.check(ctx, "inventory", inventory.Invariants, query); err != nil {
			return err
		}
		return a.check(ctx, "transfer", transfer.Invariants, query)
	})
	if err != nil {
		return err
	}
	if wallets == nil {
		fmt.Fprintln(std.out, "wallet     not checked: no --mongo-url (SHOP_MONGO_URL)")
	} else if err := a.check(ctx, "wallet", wallet.Invariants, wallet.Pipelines(wallets)); err != nil {
		return err
	}
	if a.broken > 0 {
		return fmt.Errorf("audit: %d of %d invariants are broken", a.broken, a.all)
	}
	return nil
}

// snapshot runs fn in a transaction that reads one snapshot. The limits of the pool are those of a request: they end
// before a table of millions is read.
func snapshot(ctx context.Context, pool *pgxpool.Pool, limit time.Duration, fn func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			SELECT set_config('statement_timeout', $1, true),
			       set_config('idle_in_transaction_session_timeout', $1, true),
			       set_config('work_mem', '64MB', true), -- otherwise each join of large tables goes through files
			       CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL -- PostgreSQL 17 and later
			            THEN set_config('transaction_timeout', '0', true) END`, strconv.FormatInt(limit.Milliseconds(), 10))
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		return fn(tx)
	})
}

// audit is one run of the command.
type audit struct {
	std         stdio
	limit       time.Duration
	all, broken int // invariants
}

// check runs the checks of a flow, and prints a line for each check when it begins and ends.
func (a *audit) check(ctx context.Context, flow string, set invariant.Set, query func(context.Context, invariant.Check) ([]string, error)) error {
	findings, err := invariant.Run(ctx, set.Checks, func(ctx context.Context, check invariant.Check) ([]string, error) {
		ctx, cancel := context.WithTimeout(ctx, a.limit) // a silent server enforces no limit; MongoDB has no other one
		defer cancel()
		begun := time.Now()
		fmt.Fprintf(a.std.err, "audit: %s %s ... ", flow, check.Name)
		ids, err := query(ctx, check)
		fmt.Fprintf(a.std.err, "%.1f s\n", time.Since(begun).Seconds())
		if err != nil && time.Since(begun) >= a.limit {
			err = fmt.Errorf("%w\nit took longer than --limit (SHOP_AUDIT_LIMIT), %v", err, a.limit)
		}
		return ids, err
	})
	if err != nil {
		return err
	}
	a.all += len(findings)
	a.broken += printFindings(a.std.out, flow, set.Invariants, findings)
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

// auditNumbers runs the audit for GET /v1/audit, within the limits of a request. It fails if a configured MongoDB is
// down, because a partial audit would look like a complete one.
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
