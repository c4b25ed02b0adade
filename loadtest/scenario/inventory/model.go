// SPDX-License-Identifier: MIT

package inventory

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"shop/loadtest/linear"
)

// A partition is a product: its stock and its orders. An order of two products is projected on
// each of them. That raises no false alarm, since a moment at which both change is a moment for
// each. It does not detect a purchase that takes its products at two different moments: I-WHOLE
// and S1-DURING do.

// product is the state of the model.
type product struct {
	stock  int64
	orders string // a byte for the state of each order
}

// The states of an order.
const (
	absent    = '-'
	confirmed = 'b'
	cancelled = 'c'
)

// Equal and String make it a linear.State.
func (p product) Equal(other linear.State) bool { return p == other }
func (p product) String() string                { return fmt.Sprintf("%d left", p.stock) }

// with returns the state after a change of an order and of the stock.
func (p product) with(order int, is byte, units int64) product {
	orders := []byte(p.orders)
	orders[order] = is
	return product{p.stock + units, string(orders)}
}

// placed is a purchase and its place in product.orders.
type placed struct {
	lines []Stock
	place map[string]int // by product
}

// model sorts the operations of a history by product.
type model struct {
	products map[string]*linear.Partition
	orders   map[string]placed // by id
}

// linearize returns the partitions of a history.
func linearize(h linear.History) ([]linear.Partition, error) {
	var given []Stock
	if err := json.Unmarshal(h.Header.Given, &given); err != nil {
		return nil, fmt.Errorf("products of the plan: %w", err)
	}
	m := model{map[string]*linear.Partition{}, map[string]placed{}}
	for _, s := range given {
		m.start(s.SKU, s.Quantity)
	}
	for i := range h.Operations { // purchases first: the other operations refer to their orders
		if o := &h.Operations[i]; isPurchase(o) {
			m.purchase(o)
		}
	}
	for i := range h.Operations {
		if o := &h.Operations[i]; !isPurchase(o) {
			m.other(o)
		}
	}
	var partitions []linear.Partition
	for _, sku := range slices.Sorted(maps.Keys(m.products)) {
		partitions = append(partitions, *m.products[sku])
	}
	return partitions, nil
}

func isPurchase(o *linear.Operation) bool {
	_, is := o.PathIs(http.MethodPost, "/v1/orders")
	return is
}

// product returns the partition of a product. One that is not in the plan starts with a stock of 0.
func (m model) product(sku string) *linear.Partition {
	if m.products[sku] == nil {
		m.start(sku, 0)
	}
	return m.products[sku]
}

func (m model) start(sku string, stock int64) {
	m.products[sku] = &linear.Partition{
		Object: "product " + sku, Start: product{stock: stock},
		Amount: func(s linear.State) int64 { return s.(product).stock },
	}
}

// add appends a step to a product.
func (m model) add(sku string, s linear.Step) {
	p := m.product(sku)
	p.Steps = append(p.Steps, s)
}

func (m model) purchase(o *linear.Operation) {
	var asked struct{ Lines []Stock }
	if !o.Asked(&asked) || len(asked.Lines) == 0 {
		return // malformed on purpose: it concerns no product
	}
	switch o.Fate() {
	case linear.Done, linear.Maybe:
		m.bought(o, asked.Lines)
	case linear.Refused:
		m.soldOut(o, asked.Lines)
	case linear.Contradiction:
		m.add(asked.Lines[0].SKU, linear.NewStep(o, o.Key+": answered as not bought, but the order exists").Never())
	}
}

func (m model) bought(o *linear.Operation, lines []Stock) {
	var made struct{ ID string }
	o.ReadAnswer(&made)
	order := placed{lines, map[string]int{}}
	for _, l := range lines {
		p := m.product(l.SKU)
		start := p.Start.(product)
		place := len(start.orders)
		start.orders += string(rune(absent))
		p.Start, order.place[l.SKU] = start, place
		step := linear.NewStep(o, fmt.Sprintf("%s: buy %d", o.Key, l.Quantity))
		step.Adds = -l.Quantity
		m.add(l.SKU, step.Does(func(s linear.State) (linear.State, bool) {
			p := s.(product)
			return p.with(place, confirmed, -l.Quantity), p.stock >= l.Quantity
		}))
	}
	if made.ID != "" {
		m.orders[made.ID] = order
	}
}

// soldOut adds a refusal, which names the product that was short and how many units were left.
func (m model) soldOut(o *linear.Operation, lines []Stock) {
	var why struct {
		SKU  string
		Left *int64
	}
	if o.Problem != "out-of-stock" || !o.ReadAnswer(&why) {
		return // not valid, whatever the stock
	}
	for _, l := range lines {
		if l.SKU != why.SKU && len(lines) > 1 {
			continue
		}
		step := linear.NewStep(o, fmt.Sprintf("%s: %d refused", o.Key, l.Quantity))
		step.Shows = why.Left
		m.add(l.SKU, step.Checks(func(s linear.State) bool {
			left := s.(product).stock
			return left < l.Quantity && (why.Left == nil || *why.Left == left)
		}))
	}
}

// other adds an operation that is not a purchase.
func (m model) other(o *linear.Operation) {
	if id, is := o.PathIs(http.MethodPost, "/v1/orders/*/cancel"); is {
		m.cancellation(o, id[0])
		return
	}
	if o.Fate() != linear.Done {
		return // a read without an answer, or of another client's order
	}
	if id, is := o.PathIs(http.MethodGet, "/v1/orders/*"); is {
		m.readOrder(o, id[0])
	}
	if _, is := o.PathIs(http.MethodGet, "/v1/products/*"); is {
		var shown shownProduct
		if o.ReadAnswer(&shown) {
			m.readProduct(o, shown)
		}
	}
	if _, is := o.PathIs(http.MethodGet, "/v1/products"); is {
		var shown struct{ Products []shownProduct }
		o.ReadAnswer(&shown)
		for _, p := range shown.Products {
			m.readProduct(o, p)
		}
	}
}

// shownProduct is a product in an answer.
type shownProduct struct {
	SKU   string
	Stock int64
}

func (m model) readProduct(o *linear.Operation, shown shownProduct) {
	step := linear.NewStep(o, fmt.Sprintf("%s: %d left", o.Key, shown.Stock))
	step.Shows = &shown.Stock
	m.add(shown.SKU, step.Checks(func(s linear.State) bool { return s.(product).stock == shown.Stock }))
}

// is reports whether an order is in a state; an order that no purchase returned is in none.
func (m model) is(id, sku string, what byte) func(linear.State) bool {
	place, known := m.orders[id].place[sku]
	return func(s linear.State) bool { return known && s.(product).orders[place] == what }
}

// linesOf returns the lines of an order. For an unknown order it returns one line with an object
// of the operation, so that the operation is checked all the same.
func (m model) linesOf(o *linear.Operation, id string) []Stock {
	if order, known := m.orders[id]; known {
		return order.lines
	}
	return []Stock{{SKU: append(slices.Clone(o.Objects), "of an order that no purchase named")[0]}}
}

func (m model) readOrder(o *linear.Operation, id string) {
	var shown struct{ Status string }
	o.ReadAnswer(&shown)
	what := map[string]byte{"confirmed": confirmed, "cancelled": cancelled}[shown.Status]
	for _, l := range m.linesOf(o, id) {
		m.add(l.SKU, linear.NewStep(o, o.Key+": shown as "+shown.Status).Checks(m.is(id, l.SKU, what)))
	}
}

func (m model) cancellation(o *linear.Operation, id string) {
	for _, l := range m.linesOf(o, id) {
		step := linear.NewStep(o, fmt.Sprintf("%s: cancel %d", o.Key, l.Quantity))
		switch fate := o.Fate(); {
		case fate == linear.Done || fate == linear.Maybe:
			step.Adds = l.Quantity
			is := m.is(id, l.SKU, confirmed)
			place := m.orders[id].place[l.SKU]
			m.add(l.SKU, step.Does(func(s linear.State) (linear.State, bool) {
				if !is(s) {
					return s, false
				}
				return s.(product).with(place, cancelled, l.Quantity), true
			}))
		case fate == linear.Refused && o.Problem == "already-cancelled":
			step.Text = o.Key + ": already cancelled"
			m.add(l.SKU, step.Checks(m.is(id, l.SKU, cancelled)))
		case fate == linear.Contradiction:
			m.add(l.SKU, step.Never())
		}
	}
}
