// SPDX-License-Identifier: MIT

package inventory_test

import (
	"errors"
	"sync"
	"testing"

	"shop/inventory"
	"shop/locking"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
)

func TestCancel_WhileEachStrategyBuysKeepsTheInvariants(t *testing.T) {
	t.Parallel()
	for _, strategy := range append(safe(), "redis-only") { // whose lock is held throughout
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := openWithRedis(t, inventory.Config{Strategy: strategy})
			const pieces = 12
			s.stock("A", pieces)
			s.stock("B", pieces)
			both := []inventory.Line{{SKU: "B", Quantity: 1}, {SKU: "A", Quantity: 1}}
			var wg sync.WaitGroup
			for n := range pieces {
				wg.Go(func() {
					buyer, lines := newRequest(), both[n%2:] // half of them want A alone: combined puts those in batches
					if _, err := until(t.Context(), s.Service, buyer, lines); err != nil {
						t.Error(err)
						return
					}
					id := s.ordered(buyer, lines...) // a replay
					_, err := s.Cancel(t.Context(), requestBy(buyer.Client, "cancel"), id)
					for errors.Is(err, locking.ErrBusy) {
						_, err = s.Cancel(t.Context(), requestBy(buyer.Client, "cancel"), id)
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if a, b := s.left("A"), s.left("B"); a != pieces || b != pieces {
				t.Errorf("stock %d and %d, want %d", a, b, pieces)
			}
			if got := s.Number(`SELECT count(*) FROM stock_movements WHERE kind = 'cancel'`); got != pieces*3/2 {
				t.Errorf("%d gave back, want %d", got, pieces*3/2)
			}
			s.mustHold()
		})
	}
}

// Only the purchases of naive are wrong: they overwrite a cancel between their read and
// their write. The write of the cancel itself is relative.
func TestCancel_IsRelativeEvenUnderNaive(t *testing.T) {
	t.Parallel()
	pause, read, resume := locktest.PauseAt(inventory.AfterGuard)
	s := open(t, inventory.Config{})
	s.stock("A", 10)
	buyer := newRequest()
	id := s.ordered(buyer, inventory.Line{SKU: "A", Quantity: 4})
	cfg := s.cfg
	cfg.Strategy, cfg.Failpoint, cfg.Pool = "naive", pause, pgtest.Pool(t, s.URL, pgtest.Unhurried)
	naive, _ := s.another(cfg)
	done := make(chan error)
	go func() { _, err := naive.Buy(t.Context(), newRequest(), one("A")); done <- err }()
	<-read
	if _, err := s.Cancel(t.Context(), requestBy(buyer.Client, "c"), id); err != nil {
		t.Error(err)
	}
	if got := s.left("A"); got != 10 {
		t.Errorf("%d left after the cancel, want 10", got)
	}
	resume()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := s.left("A"); got != 5 {
		t.Errorf("%d left: naive read 6 and must have written 5 over the cancel", got)
	}
}
