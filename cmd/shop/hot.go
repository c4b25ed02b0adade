// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// errUnknownHot reports a hot product, account or wallet that does not exist. A misspelt name would be served without
// batches, as if the setting were missing.
var errUnknownHot = errors.New("no such")

// checkHot looks up the hot products and accounts. The hot wallets are looked up when MongoDB replies (walletBackend.watch).
func (c *serveCmd) checkHot(ctx context.Context, pool *pgxpool.Pool) error {
	rows, _ := pool.Query(ctx, `SELECT sku FROM products WHERE sku = ANY($1)`, c.Locks.Hot)
	products, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	rows, _ = pool.Query(ctx, `SELECT id FROM accounts WHERE id = ANY($1::uuid[])`, texts(c.Transfers.Hot))
	accounts, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return err
	}
	if err := errors.Join(unknownHot("--hot-products", c.Locks.Hot, products), unknownHot("--hot-accounts", c.Transfers.Hot, accounts)); err != nil {
		return &usageError{err}
	}
	return nil
}

// unknownHot names the wanted keys that were not found.
func unknownHot[K comparable](flag string, wanted, found []K) error {
	var unknown []K
	for _, key := range wanted {
		if !slices.Contains(found, key) {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w: %v", flag, errUnknownHot, unknown)
}

func texts(ids []uuid.UUID) (all []string) {
	for _, id := range ids {
		all = append(all, id.String())
	}
	return all
}
