package inventory

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// LinesMax is how many products one order may name.
const LinesMax = 20

// purchase is a request to buy, checked and in lock order.
type purchase struct {
	intent
	id    uuid.UUID
	lines []Line // in byte order of sku, each once: the order in which everything is locked
	skus  []string
}

// newPurchase checks what needs no database.
func newPurchase(strategy string, req Request, lines []Line) (*purchase, error) {
	if err := checkRequest(req); err != nil {
		return nil, err
	}
	if len(lines) < 1 || len(lines) > LinesMax {
		return nil, fmt.Errorf("%w: %d lines, want 1 to %d", ErrInvalid, len(lines), LinesMax)
	}
	// Byte order, as in the sku column's COLLATE "C". If two purchases took the
	// same rows in different orders, each could wait for the other.
	sorted := slices.SortedFunc(slices.Values(lines), func(a, b Line) int { return cmp.Compare(a.SKU, b.SKU) })
	p := &purchase{intent: intent{req: req, strategy: strategy}, lines: sorted}
	for i, l := range sorted {
		if err := checkLine(l); err != nil {
			return nil, err
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

func checkRequest(req Request) error {
	printable := func(r rune) bool { return r >= ' ' && r <= '~' }
	if n := len(req.Key); n < 1 || n > 255 || strings.ContainsFunc(req.Key, func(r rune) bool { return !printable(r) }) {
		return fmt.Errorf("%w: the idempotency key must be 1 to 255 printable ASCII characters", ErrInvalid)
	}
	return nil
}

func checkLine(l Line) error {
	if err := checkSKU(l.SKU); err != nil {
		return err
	}
	if l.Quantity < 1 {
		return fmt.Errorf("%w: quantity %d of %q", ErrInvalid, l.Quantity, l.SKU)
	}
	return nil
}

func checkSKU(sku string) error {
	if len(sku) < 1 || len(sku) > 64 || !utf8.ValidString(sku) || strings.ContainsRune(sku, 0) {
		return fmt.Errorf("%w: a sku must be 1 to 64 bytes of UTF-8, without NUL", ErrInvalid)
	}
	return nil
}

// price makes the order out of what was read. Unknown skus and sums that cannot
// be are errors; whether the stock suffices is another question.
func (p *purchase) price(items []item) (Order, error) {
	order := Order{ID: p.id, Client: p.req.Client, Status: Confirmed}
	for _, l := range p.lines {
		i := find(items, l.SKU)
		if i == nil {
			return Order{}, &UnknownSKUError{SKU: l.SKU}
		}
		if order.Currency != "" && order.Currency != i.currency {
			return Order{}, fmt.Errorf("%w: %s and %s in one order", ErrInvalid, order.Currency, i.currency)
		}
		if i.price > 0 && l.Quantity > (math.MaxInt64-order.Total)/i.price {
			return Order{}, fmt.Errorf("%w: the total is too large", ErrInvalid)
		}
		order.Currency, order.CreatedAt = i.currency, i.at.UTC()
		order.Total += i.price * l.Quantity
		order.Lines = append(order.Lines, OrderLine{SKU: l.SKU, Quantity: l.Quantity, UnitPrice: i.price})
	}
	return order, nil
}

// decide is price, and then refuses what is not there.
func (p *purchase) decide(items []item) (Order, error) {
	order, err := p.price(items)
	if err != nil {
		return Order{}, err
	}
	for _, l := range p.lines {
		if i := find(items, l.SKU); i.stock < l.Quantity {
			return Order{}, &OutOfStockError{SKU: l.SKU, Wanted: l.Quantity, Left: i.stock}
		}
	}
	return order, nil
}

func find(items []item, sku string) *item {
	for n := range items {
		if items[n].sku == sku {
			return &items[n]
		}
	}
	return nil
}
