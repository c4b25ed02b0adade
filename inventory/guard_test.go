// SPDX-License-Identifier: MIT

package inventory_test

import (
	"errors"
	"testing"

	"shop/inventory"
	"shop/locking"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
)

func TestRetry_SerializableAndOptimisticRunAgainAndBothPurchasesSucceed(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"serializable", "optimistic"} {
		s := open(t, inventory.Config{Strategy: strategy, Failpoint: locktest.MeetAt(2, inventory.AfterGuard)})
		s.stock("A", 2)
		buyAtOnce(t, []*inventory.Service{s.Service, s.Service}, one("A"))
		if got := s.events.Of(inventory.Retried); got == 0 {
			t.Errorf("%s: nothing was retried: the purchases did not collide", strategy)
		}
		if got := s.left("A"); got != 0 {
			t.Errorf("%s: %d left, want 0", strategy, got)
		}
		s.mustHold()
	}
}

// Another purchase takes the product of one line between the read and the write. The
// purchase must run again as a whole: otherwise one line of the order would not have been
// taken from stock.
func TestRetry_OptimisticWritesAllLinesOrNone(t *testing.T) {
	t.Parallel()
	for _, gone := range []string{"A", "B", "C"} {
		pause, reached, resume := locktest.PauseAt(inventory.AfterGuard)
		s := open(t, inventory.Config{})
		var lines []inventory.Line
		for _, sku := range []string{"A", "B", "C"} {
			s.stock(sku, 1)
			lines = append(lines, one(sku)...)
		}
		cfg := s.cfg
		cfg.Strategy, cfg.Failpoint = "optimistic", pause
		buyer, events := s.another(cfg)
		refused := make(chan bool)
		go func() {
			reply, err := buyer.Buy(t.Context(), newRequest(), lines)
			report(t, err)
			refused <- isRefused(reply)
		}()
		<-reached
		if _, err := s.Buy(t.Context(), newRequest(), one(gone)); err != nil {
			t.Error(err)
		}
		resume()
		if !<-refused || s.orders() != 1 {
			t.Errorf("%d orders of %s, of which there was 1", s.orders(), gone)
		}
		if got := events.Of(inventory.Retried); got != 1 {
			t.Errorf("%s: %d retried, want 1", gone, got)
		}
		s.mustHold()
	}
}

// The last line of defence: a strategy with a stale read writes relative to the current
// stock, and CHECK (stock >= 0) refuses to oversell.
func TestGuard_RefusesWhatTheStrategyDidNotSee(t *testing.T) {
	t.Parallel()
	pause, reached, resume := locktest.PauseAt(inventory.AfterGuard)
	s := open(t, inventory.Config{})
	s.stock("A", 1)
	cfg := s.cfg
	cfg.Strategy, cfg.Failpoint, cfg.Pool = "advisory", pause, pgtest.Pool(t, s.URL, pgtest.Unhurried)
	advisory, events := s.another(cfg)
	refused := make(chan bool)
	go func() {
		reply, err := advisory.Buy(t.Context(), newRequest(), one("A"))
		if err != nil {
			t.Error(err)
		}
		refused <- isRefused(reply)
	}()
	<-reached
	if _, err := s.Buy(t.Context(), newRequest(), one("A")); err != nil { // by row, which ignores advisory locks
		t.Error(err)
	}
	resume()
	if !<-refused {
		t.Error("sold the unit that the other purchase had bought")
	}
	if got := events.Of(inventory.GuardTripped); got != 1 {
		t.Errorf("%d trips counted, want 1", got)
	}
	s.mustHold()
}

// Names with the same number only wait for each other: here another session holds the number of the sku.
func TestAdvisory_CollisionOnlyWaits(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	const sku = "collides" // unique among tests: all schemas share advisory locks
	s.stock(sku, 1)
	letGo := s.Hold(`SELECT pg_advisory_xact_lock($1)`, inventory.LockKey("inventory/product/"+sku))
	req := newRequest()
	if _, err := s.impatient("advisory").Buy(t.Context(), req, one(sku)); !errors.Is(err, locking.ErrBusy) {
		t.Errorf("%v, want ErrBusy", err)
	}
	letGo()
	for _, strategy := range []string{"advisory", "advisory-try"} {
		if reply, err := s.impatient(strategy).Buy(t.Context(), req, one(sku)); err != nil || isRefused(reply) {
			t.Errorf("%s: %s, %v", strategy, reply.Body, err)
		}
	}
	s.mustHold()
}
