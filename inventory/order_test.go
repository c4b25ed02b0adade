// SPDX-License-Identifier: MIT

package inventory_test

import (
	"slices"
	"testing"

	"shop/inventory"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
)

// A buyer that waits for the last lock must hold the first one, regardless of the order of
// its lines and of the rows in the tables: otherwise two buyers could deadlock. All
// strategies use byte order: Z before a.
func TestLocks_AreTakenInByteOrderOfSKU(t *testing.T) {
	for _, strategy := range append(safe(), "naive", "redis-only", "cancel") {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := openWithRedis(t, inventory.Config{Strategy: "row"})
			a, z := "a "+strategy, "Z "+strategy // unique among tests: all schemas share advisory locks
			s.stock(a, 5)
			s.stock(z, 5)
			lines := []inventory.Line{{SKU: a, Quantity: 1}, {SKU: z, Quantity: 1}}
			owner := newRequest()
			id := s.ordered(owner, lines...)
			for _, table := range []string{"products", "order_lines"} { // Z lies behind a
				s.Exec("UPDATE "+table+" SET sku = sku WHERE sku = $1", z)
			}
			cfg := s.cfg
			cfg.Pool = pgtest.Pool(t, s.URL, unordered...)
			buyer, events := s.another(cfg)
			letGo := s.Hold(`SELECT FROM products WHERE sku = $1 FOR UPDATE`, a)
			done := make(chan error)
			go func() {
				var err error
				if strategy == "cancel" {
					_, err = buyer.Cancel(t.Context(), requestBy(owner.Client, "c"), id)
				} else {
					_, err = buyer.BuyWith(t.Context(), strategy, newRequest(), lines)
				}
				done <- err
			}()
			locktest.Eventually(t, "the buyer waits for a", func() bool { return s.Waiting() > 0 })
			if free := s.Number(`SELECT count(*) FROM (SELECT FROM products WHERE sku = $1 FOR UPDATE SKIP LOCKED) z`, z); free != 0 {
				t.Error("waits for a without Z: a holder of Z may be waiting for the holder of a")
			}
			letGo()
			if err := <-done; err != nil {
				t.Error(err)
			}
			want := 0
			if strategy == "slots" {
				want = 1 // after it found no slot
			}
			if got := events.Of(inventory.Retried); got != want {
				t.Errorf("ran again %d times, want %d: there was a conflict", got, want)
			}
			s.mustHold()
		})
	}
}

// unordered keeps PostgreSQL from plans that happen to read rows in the order of an index:
// without ORDER BY, rows come in the order of the table.
var unordered = []string{"enable_indexscan=off", "enable_indexonlyscan=off", "enable_bitmapscan=off", "enable_nestloop=off", "enable_mergejoin=off"}

func TestLocks_AdvisoryInOrderOfTheirNumbers(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{Strategy: "advisory"})
	skus := []string{"in order A", "in order B", "in order C", "in order D"} // unique among tests
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
		t.Fatal("choose other skus: these are already in the order of their numbers")
	}
	letGo := s.Hold(`SELECT pg_advisory_xact_lock($1)`, keys[len(keys)-1])
	done := make(chan error)
	go func() { _, err := s.Buy(t.Context(), newRequest(), lines); done <- err }()
	for _, key := range keys[:len(keys)-1] {
		locktest.Eventually(t, "the buyer holds all but the last number", func() bool {
			return s.Number(`SELECT CASE WHEN pg_try_advisory_xact_lock($1) THEN 1 ELSE 0 END`, key) == 0
		})
	}
	letGo()
	if err := <-done; err != nil {
		t.Error(err)
	}
	s.mustHold()
}

// A purchase that waits for its row must not hold its key: a request with the same key that has the row would wait for
// the key, and the two would deadlock.
func TestLocks_TheRowComesBeforeTheKey(t *testing.T) {
	t.Parallel()
	for _, strategy := range append(safe(), "naive", "redis-only", "cancel") {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := openWithRedis(t, inventory.Config{Strategy: "row"})
			sku := "before the key " + strategy // unique among tests: all schemas share advisory locks
			s.stock(sku, 5)
			owner := newRequest()
			id := s.ordered(owner, one(sku)...)
			req := requestBy(owner.Client, "k")
			impatient := pgtest.Pool(t, s.URL, "lock_timeout=100")
			letGo := s.Hold(`SELECT FROM products WHERE sku = $1 FOR UPDATE`, sku)
			done := make(chan error)
			go func() {
				var err error
				if strategy == "cancel" {
					_, err = s.Cancel(t.Context(), req, id)
				} else {
					_, err = s.BuyWith(t.Context(), strategy, req, one(sku))
				}
				done <- err
			}()
			locktest.Eventually(t, "the request waits for the row", func() bool { return s.Waiting() > 0 })
			if _, err := impatient.Exec(t.Context(), `INSERT INTO idempotency_keys VALUES ($1, $2, $3, 0, '')`, req.Client, req.Key, req.Fingerprint[:]); err != nil {
				t.Errorf("waits for the row with its key inserted: %v", err)
			}
			s.Exec(`DELETE FROM idempotency_keys WHERE key = $1`, req.Key)
			letGo()
			if err := <-done; err != nil {
				t.Error(err)
			}
			s.mustHold()
		})
	}
}
