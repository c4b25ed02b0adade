// SPDX-License-Identifier: MIT

// Package units sells a product whose units are rows of their own. Buyers of one product do not wait for each other.
//
// # The question
//
// SELECT … FOR UPDATE of the product's row lets one buyer in at a time, and each holds a connection while it waits. Must
// they wait at all? They want any unit, and not the same one: FOR UPDATE SKIP LOCKED gives each buyer units that no other
// transaction has locked. It is how Shopify takes stock (2026), and how a queue in PostgreSQL takes jobs.
//
// # The invariant
//
// A unit has one order at most. A buyer gets all units that it wants, or none.
//
// # What goes wrong
//
//	all open units are locked     they are not sold: their transactions may roll back. Take returns locking.ErrBusy, and not
//	                              ErrSoldOut: that would turn buyers away while there is stock
//	fewer units are open          ErrSoldOut, finally, unless an order is cancelled
//	a buyer dies                  its transaction is rolled back, and its units are open
//	a buyer wants many units      it may find too few that are not locked, again and again: repeat it, or take FOR UPDATE
//
// # What it costs
//
// A row for each unit, and its update. It is for stock that is counted in thousands; a product with millions of units is
// better divided into slots, each with a number.
package units

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"shop/locking"
)

// Schema makes the table.
//
//go:embed units.sql
var Schema string

// ErrSoldOut reports that fewer units are open than a buyer wants.
var ErrSoldOut = errors.New("units: sold out")

// Tx is a pgx.Tx.
type Tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Take takes n units of a product for an order, in tx. After an error tx must be rolled back: it may have taken some.
func Take(ctx context.Context, tx Tx, sku string, n int, order uuid.UUID) error {
	if n < 1 {
		return fmt.Errorf("units: %d units of %s: want 1 or more", n, sku)
	}
	// MATERIALIZED: the units are picked once, whatever the plan is. A subquery promises no such thing.
	taken, err := tx.Exec(ctx, `
		WITH picked AS MATERIALIZED (
			SELECT id FROM stock_units
			WHERE sku = $1 AND order_id IS NULL
			ORDER BY id
			LIMIT $2
			FOR UPDATE SKIP LOCKED)
		UPDATE stock_units
		SET order_id = $3
		FROM picked
		WHERE stock_units.id = picked.id`, sku, n, order)
	if err != nil || taken.RowsAffected() == int64(n) {
		return err
	}
	// This statement reads what is committed: a unit that another transaction has locked is open.
	open, err := tx.Exec(ctx, `SELECT FROM stock_units WHERE sku = $1 AND order_id IS NULL LIMIT $2`, sku, int64(n)-taken.RowsAffected())
	switch {
	case err != nil:
		return err
	case open.RowsAffected()+taken.RowsAffected() < int64(n):
		return fmt.Errorf("%w: %d units of %s", ErrSoldOut, n, sku)
	}
	return fmt.Errorf("%w: other buyers have locked the last units of %s", locking.ErrBusy, sku)
}
