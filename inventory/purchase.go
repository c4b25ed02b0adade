// SPDX-License-Identifier: MIT

package inventory

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"shop/locking/idempotency/pgtx"
)

// LinesMax is how many products one order may name.
const LinesMax = 20

// purchase is a request to buy, checked and in lock order.
type purchase struct {
	*pgtx.Op
	id    uuid.UUID
	lines []Line // in byte order of sku, each once: the order in which everything is locked
	skus  []string
}

// newPurchase validates everything that needs no database.
func newPurchase(strategy string, req Request, lines []Line) (*purchase, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	if len(lines) < 1 || len(lines) > LinesMax {
		return nil, fmt.Errorf("%w: %d lines, want 1 to %d", ErrInvalid, len(lines), LinesMax)
	}
	// Byte order, as in the sku column's COLLATE "C": purchases that lock rows in different orders could deadlock.
	sorted := slices.SortedFunc(slices.Values(lines), func(a, b Line) int { return cmp.Compare(a.SKU, b.SKU) })
	p := &purchase{Op: &pgtx.Op{Request: req, Label: strategy}, lines: sorted}
	for i, l := range sorted {
		if err := checkSKU(l.SKU); err != nil {
			return nil, err
		}
		if l.Quantity < 1 {
			return nil, fmt.Errorf("%w: quantity %d of %q", ErrInvalid, l.Quantity, l.SKU)
		}
		if i > 0 && sorted[i-1].SKU == l.SKU {
			return nil, fmt.Errorf("%w: %q twice", ErrInvalid, l.SKU)
		}
		p.skus = append(p.skus, l.SKU)
	}
	var err error
	p.id, err = uuid.NewV7()
	return p, err
}

func checkSKU(sku string) error {
	if len(sku) < 1 || len(sku) > 64 || !utf8.ValidString(sku) || strings.ContainsRune(sku, 0) {
		return fmt.Errorf("%w: a sku must be 1 to 64 bytes of UTF-8, without NUL", ErrInvalid)
	}
	return nil
}

// item is a product as a transaction reads it.
type item struct {
	SKU       string
	Price     int64
	Currency  string
	Stock     int64
	Version   int64
	ClientMax *int64    // how many units one client may have; nil: no limit
	At        time.Time // now(): the transaction's time, the same in all its statements
}

// readAndDecide sends sql, which reads the products of the purchase, after all queued
// statements, and makes the order from the result.
func (p *purchase) readAndDecide(ctx context.Context, tx *pgtx.Tx, sql string) ([]item, Order, error) {
	items, err := pgtx.Select[item](ctx, tx, sql, p.skus)
	if err != nil {
		return nil, Order{}, err
	}
	if err := tx.Step(ctx, AfterGuard); err != nil {
		return nil, Order{}, err
	}
	order, err := p.decide(items)
	return items, order, err
}

// price makes the order from what was read, whether or not the stock suffices.
func (p *purchase) price(items []item) (Order, error) {
	order := Order{ID: p.id, Client: p.Client, Status: Confirmed}
	for _, l := range p.lines {
		i := find(items, l.SKU)
		if i == nil {
			return Order{}, &UnknownSKUError{SKU: l.SKU}
		}
		if l.UnitPrice != nil && *l.UnitPrice != i.Price {
			return Order{}, &PriceChangedError{SKU: l.SKU, Seen: *l.UnitPrice, Price: i.Price}
		}
		if order.Currency != "" && order.Currency != i.Currency {
			return Order{}, fmt.Errorf("%w: %s and %s in one order", ErrInvalid, order.Currency, i.Currency)
		}
		if i.Price > 0 && l.Quantity > (math.MaxInt64-order.Total)/i.Price {
			return Order{}, fmt.Errorf("%w: the total is too large", ErrInvalid)
		}
		order.Currency, order.CreatedAt = i.Currency, i.At.UTC()
		order.Total += i.Price * l.Quantity
		order.Lines = append(order.Lines, OrderLine{SKU: l.SKU, Quantity: l.Quantity, UnitPrice: i.Price})
	}
	return order, nil
}

// decide makes the order as price does, and refuses it if the stock is too low.
func (p *purchase) decide(items []item) (Order, error) {
	order, err := p.price(items)
	if err != nil {
		return Order{}, err
	}
	for _, l := range p.lines {
		if i := find(items, l.SKU); i.Stock < l.Quantity {
			return Order{}, &OutOfStockError{SKU: l.SKU, Wanted: l.Quantity, Left: i.Stock}
		}
	}
	return order, nil
}

func find(items []item, sku string) *item {
	for n := range items {
		if items[n].SKU == sku {
			return &items[n]
		}
	}
	return nil
}

// take queues the write of the stock. The write is relative: whatever was read before, it cannot undo what another
// purchase took, and CHECK (stock >= 0) refuses to oversell. This is the last line of defence.
func (p *purchase) take(tx *pgtx.Tx) {
	for _, l := range p.lines {
		tx.Queue(`
			UPDATE products
			SET stock = stock - $2, version = version + 1
			WHERE sku = $1`, l.SKU, l.Quantity)
	}
	tx.KeyHere() // rows before the key, even if this UPDATE is what locks them
}

// sale is a purchase that was accepted.
type sale struct {
	*purchase
	order Order
}

// record queues the order, its lines, and the movements. The reply is stored with the key.
func (s *Service) record(ctx context.Context, tx *pgtx.Tx, p *purchase, items []item, order Order) (Reply, error) {
	if err := p.countLimited(ctx, tx, items); err != nil {
		return Reply{}, err
	}
	recordSales(tx, sale{p, order})
	return s.cfg.Encode(order, nil)
}

// recordSales queues the same statements for several orders as for one.
func recordSales(tx *pgtx.Tx, sold ...sale) {
	n := len(sold)
	ids, clients, keys, totals, currencies := make([][16]byte, n), make([][16]byte, n), make([]string, n), make([]int64, n), make([]string, n)
	var orders [][16]byte // of the lines
	var skus []string
	var quantities, prices []int64
	for i, s := range sold {
		ids[i], clients[i], keys[i], totals[i], currencies[i] = s.order.ID, s.Client, s.Key, s.order.Total, s.order.Currency
		for _, l := range s.order.Lines {
			orders, skus, quantities, prices = append(orders, s.order.ID), append(skus, l.SKU), append(quantities, l.Quantity), append(prices, l.UnitPrice)
		}
	}
	tx.Queue(`
		INSERT INTO orders (id, client_id, idempotency_key, status, total, currency)
		SELECT o.id, o.client, o.key, 'confirmed', o.total, o.currency
		FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::text[]) AS o (id, client, key, total, currency)`,
		ids, clients, keys, totals, currencies)
	tx.Queue(`
		INSERT INTO order_lines (order_id, sku, quantity, unit_price)
		SELECT l.*
		FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[]) AS l`, orders, skus, quantities, prices)
	tx.Queue(`
		INSERT INTO stock_movements (sku, kind, quantity, order_id)
		SELECT l.sku, 'sale', -l.quantity, l.order_id
		FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS l (order_id, sku, quantity)`, orders, skus, quantities)
}
