package inventory

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"shop/locking/idempotency/pgtx"
)

// advisory: lock a number that stands for the sku, then read and write. Right,
// as long as all buyers do so.
//
// pg_advisory_xact_lock locks no row, so that it also works for what does not
// exist yet, and PostgreSQL frees it at the end of the transaction, whatever the
// end. But it is a convention: a writer that does not ask is not stopped. Against
// such a writer stands only the relative write under CHECK (stock >= 0).
func (s *Service) advisory(ctx context.Context, p *purchase) (Reply, error) {
	return s.run(ctx, p.Op, func(ctx context.Context, tx *pgtx.Tx) (Reply, error) {
		p.lockAdvisory(tx)
		return s.readUnderLock(ctx, tx, p, nil)
	})
}

// lockAdvisory queues the locks. One statement for each, in order: within one
// SELECT nothing promises that they are taken in the order of its rows.
func (p *purchase) lockAdvisory(tx *pgtx.Tx) {
	for _, key := range p.lockKeys() {
		tx.Exec(`SELECT pg_advisory_xact_lock($1)`, key)
	}
}

// readUnderLock is the half that advisory and advisory-try share. granted are the
// answers of locks that are asked for in the same round trip, and may be refused.
func (s *Service) readUnderLock(ctx context.Context, tx *pgtx.Tx, p *purchase, granted []*[]bool) (Reply, error) {
	// A statement after the lock, never the same one: its snapshot is taken when
	// it starts, and a statement that waited for the lock would read the past.
	items, err := pgtx.Select[item](ctx, tx, `
		SELECT sku, price, currency, stock, version, now()
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
	return s.record(tx, p, order)
}

// lockKeys are the numbers of the skus, each once, in their own order: two skus
// may share a number, and then the order of skus is not the order of locks.
func (p *purchase) lockKeys() []int64 {
	keys := make([]int64, len(p.skus))
	for i, sku := range p.skus {
		keys[i] = lockKey("inventory/product/" + sku)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// lockKey is the number that stands for a name among advisory locks: stable
// over versions and machines, and 64 bits wide. PostgreSQL's own hashtext() is
// neither: undocumented, and 32 bits, so that two of 77,000 names meet with even odds.
// Two names that do meet only wait for each other.
func lockKey(name string) int64 {
	sum := sha256.Sum256([]byte(name))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}
