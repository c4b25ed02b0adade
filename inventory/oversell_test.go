// SPDX-License-Identifier: MIT

package inventory_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"shop/inventory"
	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/locktest"
)

// safe returns the strategies that promise the invariants.
func safe() (names []string) {
	for _, s := range inventory.Strategies() {
		if s.Safe {
			names = append(names, s.Name)
		}
	}
	return names
}

// until retries a request with the same key until it has a reply, as a client does after
// "busy".
func until(ctx context.Context, svc *inventory.Service, req inventory.Request, lines []inventory.Line) (inventory.Reply, error) {
	for {
		reply, err := svc.Buy(ctx, req, lines)
		if !errors.Is(err, locking.ErrBusy) && !errors.Is(err, idempotency.ErrInProgress) {
			return reply, err
		}
	}
}

// orders counts the confirmed orders.
func (s *shop) orders() int64 {
	return s.Number(`SELECT count(*) FROM orders WHERE status = 'confirmed'`)
}

func TestBuy_SafeStrategiesSellExactlyWhatIsThere(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := openWithRedis(t, inventory.Config{Strategy: strategy})
			const pieces, buyers = 7, 20
			s.stock("A", pieces)
			replica, _ := s.another(s.cfg)
			var wg sync.WaitGroup
			for n := range buyers {
				svc := []*inventory.Service{s.Service, replica}[n%2]
				wg.Go(func() {
					if _, err := until(t.Context(), svc, newRequest(), one("A")); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if got := s.left("A"); got != 0 {
				t.Errorf("%d left, want 0", got)
			}
			if got := s.orders(); got != pieces {
				t.Errorf("%d sold, want %d", got, pieces)
			}
			if got := s.Number(`SELECT count(*) FROM idempotency_keys`); got != buyers {
				t.Errorf("%d answers stored, want %d", got, buyers)
			}
			s.mustHold()
		})
	}
}

func TestBuy_NaiveSellsTheLastPieceTwice(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{Strategy: "naive", Failpoint: locktest.MeetAt(2, inventory.AfterGuard)})
	s.stock("A", 1)
	buyAtOnce(t, []*inventory.Service{s.Service, s.Service}, one("A"))
	if got := s.orders(); got != 2 {
		t.Errorf("%d sold of 1: the negative control did not fail", got)
	}
	if len(s.broken()) == 0 {
		t.Error("the invariants hold: the check is blind")
	}
}

// buyAtOnce lets a client of each service buy the same product concurrently.
func buyAtOnce(t *testing.T, services []*inventory.Service, lines []inventory.Line) {
	t.Helper()
	var wg sync.WaitGroup
	for _, svc := range services {
		wg.Go(func() {
			if _, err := svc.Buy(t.Context(), newRequest(), lines); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestBuy_OppositeOrdersOfLinesNeitherDeadlockNorSplit(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := openWithRedis(t, inventory.Config{Strategy: strategy})
			const products, pieces, buyers = 4, 10, 16
			forth, back := make([]inventory.Line, products), make([]inventory.Line, products)
			for n := range products {
				line := inventory.Line{SKU: fmt.Sprintf("P%d", n), Quantity: 1}
				s.stock(line.SKU, pieces)
				forth[n], back[products-1-n] = line, line
			}
			var wg sync.WaitGroup
			for n := range buyers {
				wg.Go(func() {
					if _, err := until(t.Context(), s.Service, newRequest(), [][]inventory.Line{forth, back}[n%2]); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if got := s.orders(); got != pieces {
				t.Errorf("%d sold, want %d", got, pieces)
			}
			if got := s.Number(`SELECT count(*) FROM order_lines`); got != pieces*products {
				t.Errorf("%d lines, want %d: an order was split", got, pieces*products)
			}
			s.mustHold()
		})
	}
}

func TestBuy_OneLineShortRefusesAllAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := openWithRedis(t, inventory.Config{Strategy: strategy})
			s.stock("A", 5)
			s.stock("B", 1)
			s.stock("C", 5)
			lines := []inventory.Line{{SKU: "C", Quantity: 2}, {SKU: "B", Quantity: 2}, {SKU: "A", Quantity: 2}}
			reply, err := s.Buy(t.Context(), newRequest(), lines)
			if err != nil || !isRefused(reply) {
				t.Fatalf("%s, %v", reply.Body, err)
			}
			if a, b, c := s.left("A"), s.left("B"), s.left("C"); a != 5 || b != 1 || c != 5 {
				t.Errorf("stock %d %d %d, want 5 1 5", a, b, c)
			}
			s.mustHold()
		})
	}
}
