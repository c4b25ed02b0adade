// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"shop/locking/idempotency/pgtx"
)

// advisory locks a number derived from the sku, and then reads and writes. Right,
// as long as all writers take the lock.
//
// pg_advisory_xact_lock locks no row, so it also works for rows that do not exist
// yet, and PostgreSQL releases it when the transaction ends in any way. But it is a
// convention: a writer that does not take it is not stopped. Only the relative write
// under CHECK (stock >= 0) protects against such a writer.
func (s *Service) advisory(ctx context.Context, p *purchase) (Reply, error) {
	return s.run(ctx, p.Op, func(ctx context.Context, tx *pgtx.Tx) (Reply, error) {
		p.lockAdvisory(tx)
		return s.readUnderLock(ctx, tx, p, nil)
	})
}

// lockAdvisory queues the locks in order, one statement for each: a single SELECT does
// not guarantee that it takes them in the order of its rows.
func (p *purchase) lockAdvisory(tx *pgtx.Tx) {
	for _, key := range p.lockKeys() {
		tx.Queue(`SELECT pg_advisory_xact_lock($1)`, key)
	}
}

// readUnderLock is the part that advisory and advisory-try share. granted holds the
// results of the lock requests of the same round trip, which may be refused.
func (s *Service) readUnderLock(ctx context.Context, tx *pgtx.Tx, p *purchase, granted []*[]bool) (Reply, error) {
	// A separate statement after the lock: a statement takes its snapshot when it
	// starts, so one that waited for the lock would read stale data.
	items, err := pgtx.Select[item](ctx, tx, `
		SELECT sku, price, currency, stock, version, client_max, now()
		FROM products
		WHERE sku = ANY($1)`, p.skus)
	if err != nil {
		return Reply{}, err
	}
	for _, answer := range granted {
		if !(*answer)[0] {
			return Reply{}, fmt.Errorf("%w: another transaction holds the advisory lock", pgtx.ErrRetry)
		}
	}
	if err := tx.Step(ctx, AfterGuard); err != nil {
		return Reply{}, err
	}
	order, err := p.decide(items)
	if err != nil {
		return Reply{}, err
	}
	p.take(tx)
	return s.record(ctx, tx, p, items, order)
}

// lockKeys returns the lock numbers of the skus, each once and sorted by number: two skus
// may share a number, and then sorting by sku would not lock the numbers in one order.
func (p *purchase) lockKeys() []int64 {
	keys := make([]int64, len(p.skus))
	for i, sku := range p.skus {
		keys[i] = lockKey("inventory/product/" + sku)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// lockKey returns the advisory lock number of a name: stable across versions and
// machines, and 64 bits wide. PostgreSQL's own hashtext() is undocumented and has 32
// bits, so among 77,000 names two collide with even odds. Names that collide only wait
// for each other.
func lockKey(name string) int64 {
	sum := sha256.Sum256([]byte(name))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}
