// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"math"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"shop/locking/idempotency/pgtx"
)

const nameSlots = "slots"

// slotCount is how many buyers of a product need not wait for each other. Buyers of a product with a purchase limit wait for its
// row.
const slotCount = 16

// slots takes units from one of several rows of a product, and skips the rows that other buyers have locked. Right.
//
// FOR UPDATE of one row lets one buyer in at a time. But buyers want any unit, not the same one: FOR UPDATE SKIP LOCKED
// gives each a row that no other transaction has locked. Queues in PostgreSQL take their jobs so, and Shopify takes stock so
// (2026), with a row for each unit. Here a row has a number of units.
//
// "All rows are locked" is not "sold out": their buyers may roll back. A buyer who finds no row runs again and waits: for the
// row of the product, where such buyers meet, and if there is still no row, for all slots. It then divides what is left, and
// what was returned, into new ones. So the end of a stock, and an order of many units, is as slow as with row.
//
// Units in slots are for this strategy alone: the others do not see them, and store "sold out". All replicas must use slots: stop
// those with another strategy before the first one with slots starts. To end that, stop all, and run
//
//	BEGIN;
//	LOCK TABLE products_with_slots;
//	UPDATE products p SET stock = s.stock FROM products_with_slots s WHERE s.sku = p.sku;
//	DELETE FROM stock_slots;
//	COMMIT
//
// Buyers who do not lock the row of the product all lock it for share at the foreign keys to it, as a MultiXact whose members
// grow with their number: watch mxid_age(relminmxid) of products.
func (s *Service) slots(ctx context.Context, p *purchase) (Reply, error) {
	waits := false // the only thing that an attempt leaves to the next one
	return s.run(ctx, p.Op, func(ctx context.Context, tx *pgtx.Tx) (Reply, error) {
		// The row of a product with a purchase limit is locked for the counts. FOR UPDATE would also stop buyers who do
		// not lock the row, at the foreign keys to it.
		tx.Queue(`
			SELECT
			FROM products
			WHERE sku = ANY($1) AND (client_max IS NOT NULL OR $2)
			ORDER BY sku
			FOR NO KEY UPDATE`, p.skus, waits)
		picked := p.pick(tx)
		items, err := p.readSlots(ctx, tx, picked)
		if err != nil {
			return Reply{}, err
		}
		if err := tx.Step(ctx, AfterGuard); err != nil {
			return Reply{}, err
		}
		order, err := p.decide(items)
		if err != nil {
			return Reply{}, err
		}
		if slices.ContainsFunc(picked, func(tag *pgconn.CommandTag) bool { return tag.RowsAffected() == 0 }) {
			if !waits { // a transaction that waits for the row of a product must hold no slot of it
				waits = true
				return Reply{}, pgtx.ErrRetry
			}
			if items, order, err = p.divide(ctx, tx, picked); err != nil {
				return Reply{}, err
			}
		}
		return s.record(ctx, tx, p, items, order)
	})
}

// pick queues one statement for each line. It takes the units from a slot that has enough of them, if one is not locked.
func (p *purchase) pick(tx *pgtx.Tx) (picked []*pgconn.CommandTag) {
	for _, l := range p.lines {
		// MATERIALIZED: one slot is picked once, whatever the plan is. A subquery promises no such thing.
		picked = append(picked, tx.Queue(`
			WITH free AS MATERIALIZED (
				SELECT slot
				FROM stock_slots
				WHERE sku = $1 AND units >= $2
				ORDER BY random()
				LIMIT 1
				FOR UPDATE SKIP LOCKED)
			UPDATE stock_slots
			SET units = units - $2
			WHERE sku = $1 AND slot = (SELECT slot FROM free)`, l.SKU, l.Quantity))
	}
	return picked
}

// readSlots sends all queued statements, and reads the products with all their units: those that this purchase has picked,
// and those in slots that others have locked.
func (p *purchase) readSlots(ctx context.Context, tx *pgtx.Tx, picked []*pgconn.CommandTag) ([]item, error) {
	items, err := pgtx.Select[item](ctx, tx, `
		SELECT sku, price, currency, stock, version, client_max, now()
		FROM products_with_slots
		WHERE sku = ANY($1)`, p.skus)
	for n, l := range p.lines {
		if i := find(items, l.SKU); i != nil && picked[n].RowsAffected() > 0 {
			i.Stock += min(l.Quantity, math.MaxInt64-i.Stock) // the view is bounded too
		}
	}
	return items, err
}

// divide takes all slots of the products, whose rows are locked, makes the order again from all units, and queues the
// writes that divide those that are left.
func (p *purchase) divide(ctx context.Context, tx *pgtx.Tx, picked []*pgconn.CommandTag) ([]item, Order, error) {
	type slot struct {
		SKU   string
		Units int64
	}
	// A DELETE that waits for a buyer returns what that one has left. The buyer itself waits for no row.
	taken := pgtx.QueueRows[slot](tx, `
		DELETE FROM stock_slots
		WHERE sku = ANY($1)
		RETURNING sku, units`, p.skus)
	items, err := p.readSlots(ctx, tx, picked)
	if err != nil {
		return nil, Order{}, err
	}
	for _, t := range *taken {
		i := find(items, t.SKU)
		i.Stock += min(t.Units, math.MaxInt64-i.Stock)
	}
	order, err := p.decide(items)
	if err != nil {
		return nil, Order{}, err
	}
	for _, l := range p.lines {
		left := find(items, l.SKU).Stock - l.Quantity
		tx.Queue(`
			UPDATE products
			SET stock = 0, version = version + 1
			WHERE sku = $1`, l.SKU)
		tx.Queue(`
			INSERT INTO stock_slots (sku, slot, units)
			SELECT $1, n, $2::bigint / $3 + (n < $2::bigint % $3)::integer
			FROM generate_series(0, $3::integer - 1) AS n`, l.SKU, left, slotCount)
	}
	tx.KeyHere()
	return items, order, nil
}
