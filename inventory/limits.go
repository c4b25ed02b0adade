// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"shop/locking/idempotency/pgtx"
)

// PurchaseLimitError names a product of which the client would have more than Product.ClientMax. It matches
// ErrPurchaseLimit.
type PurchaseLimitError struct {
	SKU    string
	Wanted int64
	Bought int64 // in confirmed orders, of which a cancelled one is none
	Max    int64
}

func (e *PurchaseLimitError) Error() string {
	return fmt.Sprintf("inventory: purchase limit: %d of %q wanted, %d bought, %d at most", e.Wanted, e.SKU, e.Bought, e.Max)
}
func (e *PurchaseLimitError) Is(target error) bool { return target == ErrPurchaseLimit }

// limits are the counts of the clients that buy products with a limit in one transaction. They are kept as the stock is:
// read, decided in Go, and written relative to the current row, under the CHECK purchased_within_limit. No lock is
// added: a transaction that counts a client's units of a product holds the row lock of that product. (With slots it does not if
// the limit was set after its first statement: the CHECK holds then too.)
type limits map[buyer]*count

type buyer struct {
	sku    string
	client uuid.UUID
}

type count struct {
	units int64 // in confirmed orders, those of this transaction included
	added int64 // by this transaction
	max   int64
}

// countLimited refuses the purchase if a limit is exceeded, and otherwise queues the new counts. The rows of the products
// are locked: by the read, or by the writes that are queued. Without a product with a limit it sends nothing.
func (p *purchase) countLimited(ctx context.Context, tx *pgtx.Tx, items []item) error {
	limits, err := readLimits(ctx, tx, items, p)
	if err == nil {
		err = limits.check(p)
	}
	if err != nil {
		return err
	}
	limits.take(p)
	limits.record(tx)
	return nil
}

// readLimits reads the counts that the purchases need, in one round trip, or in none if no product has a limit. It is a
// statement of its own: one that waits for the row lock reads all other rows as they were before the wait.
func readLimits(ctx context.Context, tx *pgtx.Tx, items []item, batch ...*purchase) (limits, error) {
	all := limits{}
	var skus []string
	var clients [][16]byte
	for _, p := range batch {
		for _, sku := range p.skus {
			if i := find(items, sku); i != nil && i.ClientMax != nil {
				all[buyer{sku, p.Client}] = &count{max: *i.ClientMax}
				skus, clients = append(skus, sku), append(clients, p.Client)
			}
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	type row struct {
		SKU    string
		Client uuid.UUID
		Units  int64
	}
	// LIMIT makes the planner look up each row in the index, also while the table is small: to SERIALIZABLE, a scan of
	// the table conflicts with all purchases of products with a limit.
	rows, err := pgtx.Select[row](ctx, tx, `
		SELECT asked.sku, asked.client_id, bought.units
		FROM unnest($1::text[], $2::uuid[]) AS asked (sku, client_id)
		CROSS JOIN LATERAL (
			SELECT units
			FROM purchased
			WHERE sku = asked.sku AND client_id = asked.client_id
			LIMIT 1) AS bought`, skus, clients)
	for _, r := range rows {
		all[buyer{r.SKU, r.Client}].units = r.Units
	}
	return all, err
}

// check refuses a purchase of more than a limit leaves.
func (l limits) check(p *purchase) error {
	for _, line := range p.lines {
		if c := l[buyer{line.SKU, p.Client}]; c != nil && line.Quantity > c.max-c.units {
			return &PurchaseLimitError{SKU: line.SKU, Wanted: line.Quantity, Bought: c.units, Max: c.max}
		}
	}
	return nil
}

// take adds the units of a purchase.
func (l limits) take(p *purchase) {
	for _, line := range p.lines {
		if c := l[buyer{line.SKU, p.Client}]; c != nil {
			c.units += line.Quantity
			c.added += line.Quantity
		}
	}
}

// record queues the counts that take has changed. Their order does not matter, because the rows of the products are locked.
func (l limits) record(tx *pgtx.Tx) {
	var skus []string
	var clients [][16]byte
	var added, most []int64
	for of, c := range l {
		if c.added > 0 {
			skus, clients = append(skus, of.sku), append(clients, of.client)
			added, most = append(added, c.added), append(most, c.max)
		}
	}
	if len(skus) == 0 {
		return
	}
	tx.Queue(`
		INSERT INTO purchased AS b (sku, client_id, units, client_max)
		SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[])
		ON CONFLICT (sku, client_id) DO UPDATE
		SET units = b.units + EXCLUDED.units, client_max = EXCLUDED.client_max`, skus, clients, added, most)
}
