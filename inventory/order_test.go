package inventory_test

import (
	"slices"
	"testing"

	"shop/inventory"
)

// Whoever waits for the last lock must hold the first, in whatever order the
// lines came, and in whatever order the rows lie in the table. Then nobody can
// wait in a circle.
func TestLocks_AreTakenInOrderOfSKU(t *testing.T) {
	for _, strategy := range append(safe(), "naive", "redis-only", "cancel") {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := openWithRedis(t, inventory.Config{Strategy: "row"})
			s.stock("B", 5) // first in the table
			s.stock("A", 5)
			lines := []inventory.Line{{SKU: "B", Quantity: 1}, {SKU: "A", Quantity: 1}}
			buyer := ask()
			id := s.ordered(buyer, lines...)
			letGo := s.holding(`SELECT FROM products WHERE sku = 'B' FOR UPDATE`)
			done := make(chan error)
			go func() {
				var err error
				if strategy == "cancel" {
					_, err = s.Cancel(t.Context(), askBy(buyer.Client, "c"), id)
				} else {
					_, err = s.BuyWith(t.Context(), strategy, ask(), lines)
				}
				done <- err
			}()
			eventually(t, "the buyer waits for B", func() bool { return s.waiting() > 0 })
			if free := s.number(`SELECT count(*) FROM (SELECT FROM products WHERE sku = 'A' FOR UPDATE SKIP LOCKED) a`); free != 0 {
				t.Error("waits for B without A: somebody with A may be waiting for B's holder")
			}
			letGo()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if s.events.of(inventory.Retried) != 0 {
				t.Error("there was a conflict")
			}
			s.mustHold()
		})
	}
}

func TestLocks_AdvisoryInOrderOfTheirNumbers(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{Strategy: "advisory"})
	skus := []string{"A", "B", "C", "D"}
	for _, sku := range skus {
		s.stock(sku, 5)
	}
	var lines []inventory.Line
	for _, sku := range skus {
		lines = append(lines, one(sku)...)
	}
	keys := inventory.LockKeys(skus)
	bySKU := make([]int64, len(skus))
	for i, sku := range skus {
		bySKU[i] = inventory.LockKey("inventory/product/" + sku)
	}
	if slices.IsSorted(bySKU) {
		t.Fatal("choose other skus: the order of these is that of their numbers")
	}
	letGo := s.holding(`SELECT pg_advisory_xact_lock($1)`, keys[len(keys)-1])
	done := make(chan error)
	go func() { _, err := s.Buy(t.Context(), ask(), lines); done <- err }()
	for _, key := range keys[:len(keys)-1] {
		eventually(t, "the buyer holds all but the last number", func() bool {
			return s.number(`SELECT CASE WHEN pg_try_advisory_xact_lock($1) THEN 1 ELSE 0 END`, key) == 0
		})
	}
	letGo()
	if err := <-done; err != nil {
		t.Error(err)
	}
	s.mustHold()
}
