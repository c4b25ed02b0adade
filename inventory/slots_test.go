// SPDX-License-Identifier: MIT

package inventory_test

import (
	"errors"
	"sync"
	"testing"

	"shop/inventory"
	"shop/locking"
	"shop/locking/locktest"
)

// divided opens a shop with n units of A in slots, of which one is sold.
func divided(t testing.TB, n int64) *shop {
	t.Helper()
	s := open(t, inventory.Config{Strategy: "slots"})
	s.stock("A", n)
	if _, err := s.Buy(t.Context(), newRequest(), one("A")); err != nil {
		t.Fatal(err)
	}
	if in := s.Number(`SELECT sum(units)::bigint FROM stock_slots`); in != n-1 {
		t.Fatalf("%d units in slots, want %d", in, n-1)
	}
	return s
}

// Others have locked all slots but one: the buyer does not wait for them.
func TestSlots_BuyersDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	s := divided(t, 33)
	release := s.Hold(`SELECT FROM stock_slots WHERE slot <> 7 FOR UPDATE`)
	defer release()
	for range 2 {
		if reply, err := s.impatient("slots").Buy(t.Context(), newRequest(), one("A")); err != nil || isRefused(reply) {
			t.Errorf("%s, %v", reply.Body, err)
		}
	}
	if n := s.Number(`SELECT units FROM stock_slots WHERE slot = 7`); n != 0 {
		t.Errorf("%d units in the open slot, want 0", n)
	}
}

// All slots are locked by buyers who may roll back: that is not "sold out", and the buyer waits.
func TestSlots_LockedUnitsAreNotSold(t *testing.T) {
	t.Parallel()
	s := divided(t, 2)
	release := s.Hold(`SELECT FROM stock_slots FOR UPDATE`)
	req := newRequest()
	if reply, err := s.impatient("slots").Buy(t.Context(), req, one("A")); !errors.Is(err, locking.ErrBusy) {
		t.Errorf("the last unit is locked: %s, %v, want ErrBusy", reply.Body, err)
	}
	more := []inventory.Line{{SKU: "A", Quantity: 2}}
	if reply, err := s.impatient("slots").Buy(t.Context(), newRequest(), more); err != nil || !isRefused(reply) {
		t.Errorf("more than there are: %s, %v, want a refusal", reply.Body, err)
	}
	release()
	if reply, err := s.Buy(t.Context(), req, one("A")); err != nil || isRefused(reply) {
		t.Errorf("after the roll-back: %s, %v", reply.Body, err)
	}
	if reply, err := s.Buy(t.Context(), newRequest(), one("A")); err != nil || !isRefused(reply) {
		t.Errorf("after the sale: %s, %v, want a refusal", reply.Body, err)
	}
	s.mustHold()
}

// Orders of more units than any slot has, what a cancellation returns, and what is put in stock.
func TestSlots_UnitsAreFoundWhereverTheyAre(t *testing.T) {
	t.Parallel()
	s := divided(t, 21)
	buy := func(n int64) inventory.Reply {
		t.Helper()
		reply, err := s.Buy(t.Context(), newRequest(), []inventory.Line{{SKU: "A", Quantity: n}})
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	if isRefused(buy(15)) || !isRefused(buy(6)) || s.left("A") != 5 {
		t.Errorf("%d left, want 5", s.left("A"))
	}
	req := newRequest()
	id := s.ordered(req, inventory.Line{SKU: "A", Quantity: 5})
	if !isRefused(buy(1)) {
		t.Error("sold what is not there")
	}
	if _, err := s.Cancel(t.Context(), requestBy(req.Client, "cancel"), id); err != nil {
		t.Fatal(err)
	}
	if s.restock("A", 3); isRefused(buy(8)) || !isRefused(buy(1)) {
		t.Errorf("%d left, want 0", s.left("A"))
	}
	s.mustHold()
}

// Another version may have made more slots.
func TestSlots_AllSlotsAreDividedAgain(t *testing.T) {
	t.Parallel()
	s := divided(t, 33)
	s.Exec(`UPDATE stock_slots SET slot = 99 WHERE slot = 0`)
	s.ordered(newRequest(), inventory.Line{SKU: "A", Quantity: 12})
	if left := s.left("A"); left != 20 {
		t.Errorf("%d left, want 20", left)
	}
	s.mustHold()
}

// One buyer waits for each slot, and the others for the row of the product, at which they must not divide again and again.
func TestSlots_ManyBuyersOfALockedProductEmptyIt(t *testing.T) {
	t.Parallel()
	s := divided(t, 101)
	release := s.Hold(`SELECT FROM stock_slots FOR UPDATE`)
	var buyers sync.WaitGroup
	for range 8 {
		buyers.Go(func() {
			for {
				reply, err := until(t.Context(), s.Service, newRequest(), one("A"))
				if report(t, err); err != nil || isRefused(reply) {
					return
				}
			}
		})
	}
	locktest.Eventually(t, "buyers wait for the slots and for the row of the product", func() bool { return s.Waiting() > 1 })
	release()
	buyers.Wait()
	if s.orders() != 101 || s.left("A") != 0 {
		t.Errorf("%d sold, %d left, want 101 and 0", s.orders(), s.left("A"))
	}
	s.mustHold()
}
