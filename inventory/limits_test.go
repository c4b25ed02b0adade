// SPDX-License-Identifier: MIT

package inventory_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"shop/inventory"
	"shop/locking"
	"shop/locking/locktest"
)

// limited adds a product of which each client may have most units.
func (s *shop) limited(sku string, units, most int64) {
	s.T.Helper()
	product := inventory.Product{SKU: sku, Name: sku, Price: 100, Currency: "EUR", Stock: units, ClientMax: new(most)}
	if created, err := s.AddProduct(s.T.Context(), product); err != nil || !created {
		s.T.Fatalf("AddProduct(%q): created %v, %v", sku, created, err)
	}
}

// bought returns what a client has of a product in confirmed orders.
func (s *shop) bought(sku string, client uuid.UUID) int64 {
	s.T.Helper()
	return s.Number(`
		SELECT COALESCE(sum(l.quantity), 0)
		FROM order_lines l
		JOIN orders o ON o.id = l.order_id
		WHERE l.sku = $1 AND o.client_id = $2 AND o.status = 'confirmed'`, sku, client)
}

func TestLimit_SafeStrategiesSellAClientExactlyItsLimit(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := openWithRedis(t, inventory.Config{Strategy: strategy})
			const units, most, requests, others = 100, 3, 16, 8
			s.limited("A", units, most)
			replica, events := s.another(s.cfg)
			greedy := uuid.New()
			var refused sync.Map
			var wg sync.WaitGroup
			for n := range requests + others {
				svc := []*inventory.Service{s.Service, replica}[n%2]
				req := newRequest()
				if n < requests {
					req.Client = greedy
				}
				wg.Go(func() {
					reply, err := until(t.Context(), svc, req, one("A"))
					switch {
					case err != nil:
						t.Error(err)
					case isRefused(reply):
						refused.Store(req.Key, req.Client)
					}
				})
			}
			wg.Wait()
			total := 0
			refused.Range(func(_, client any) bool {
				if total++; client != greedy {
					t.Error("a purchase of another client was refused")
				}
				return true
			})
			if got := s.bought("A", greedy); got != most || total != requests-most {
				t.Errorf("%d sold to one client and %d refused, want %d and %d", got, total, most, requests-most)
			}
			if got := s.left("A"); got != units-most-others {
				t.Errorf("%d left, want %d", got, units-most-others)
			}
			if n := s.events.Of(inventory.GuardTripped) + events.Of(inventory.GuardTripped); n != 0 {
				t.Errorf("the CHECK refused %d writes: the decision was made on an old count", n)
			}
			s.mustHold()
		})
	}
}

// The product without a limit and the one with enough left are not sold either: an order is placed whole or not at all.
func TestLimit_RefusesACartWhole(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		s := openWithRedis(t, inventory.Config{Strategy: strategy})
		s.limited("cart A "+strategy, 10, 5)
		s.limited("cart B "+strategy, 10, 2)
		s.stock("cart C "+strategy, 10)
		client := uuid.New()
		cart := func(quantity int64) (lines []inventory.Line) {
			for _, sku := range []string{"cart C ", "cart B ", "cart A "} {
				lines = append(lines, inventory.Line{SKU: sku + strategy, Quantity: quantity})
			}
			return lines
		}
		for _, x := range []struct {
			quantity int64
			refused  bool
		}{{3, true}, {1, false}, {2, true}, {1, false}, {1, true}} {
			reply, err := s.Buy(t.Context(), requestBy(client, uuid.NewString()), cart(x.quantity))
			if err != nil || isRefused(reply) != x.refused {
				t.Errorf("%s: %d of each: %s, %v; want refused: %v", strategy, x.quantity, reply.Body, err, x.refused)
			}
			if x.refused && !strings.Contains(string(reply.Body), "cart B "+strategy) {
				t.Errorf("%s: %s names another product", strategy, reply.Body)
			}
		}
		for _, sku := range []string{"cart A ", "cart B ", "cart C "} {
			if got := s.left(sku + strategy); got != 8 {
				t.Errorf("%d of %q left, want 8", got, sku+strategy)
			}
		}
		s.mustHold()
	}
}

func TestLimit_ARefusalIsStoredAndNamesTheNumbers(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		var refusal *inventory.PurchaseLimitError
		s := openWithRedis(t, inventory.Config{Strategy: strategy, Encode: func(o inventory.Order, err error) (inventory.Reply, error) {
			if errors.As(err, &refusal) {
				return inventory.Reply{Status: 409, Body: []byte(err.Error())}, nil
			}
			return inventory.Reply{Status: 201, Body: []byte(o.ID.String())}, err
		}})
		s.limited("A", 10, 3)
		client, key := uuid.New(), uuid.NewString()
		two := []inventory.Line{{SKU: "A", Quantity: 2}}
		order, err := s.Buy(t.Context(), requestBy(client, uuid.NewString()), two)
		report(t, err)
		first, err := s.Buy(t.Context(), requestBy(client, key), two)
		report(t, err)
		if refusal == nil || *refusal != (inventory.PurchaseLimitError{SKU: "A", Wanted: 2, Bought: 2, Max: 3}) || !errors.Is(refusal, inventory.ErrPurchaseLimit) {
			t.Fatalf("%s: %+v", strategy, refusal)
		}
		// A cancellation gives the units back. The key keeps its answer; a new key buys.
		if _, err := s.Cancel(t.Context(), requestBy(client, uuid.NewString()), uuid.MustParse(string(order.Body))); err != nil {
			t.Fatal(err)
		}
		if again, err := s.Buy(t.Context(), requestBy(client, key), two); err != nil || !again.Replayed || !bytes.Equal(again.Body, first.Body) {
			t.Errorf("%s: %s, %v; want the stored refusal", strategy, again.Body, err)
		}
		if reply, err := s.Buy(t.Context(), requestBy(client, uuid.NewString()), two); err != nil || reply.Status != 201 {
			t.Errorf("%s: %s, %v; want an order", strategy, reply.Body, err)
		}
		s.mustHold()
	}
}

func TestLimit_ACancellationGivesBackExactlyOnce(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{Encode: func(o inventory.Order, err error) (inventory.Reply, error) {
		return inventory.Reply{Status: 201, Body: []byte(fmt.Sprint(o.ID, err))}, nil
	}})
	s.limited("A", 10, 2)
	s.stock("B", 10)
	client := uuid.New()
	reply, err := s.Buy(t.Context(), requestBy(client, uuid.NewString()), append(one("A"), one("B")...))
	report(t, err)
	order := uuid.MustParse(string(reply.Body[:36]))
	if _, err := s.Buy(t.Context(), requestBy(client, uuid.NewString()), one("A")); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, err := s.Cancel(t.Context(), requestBy(client, uuid.NewString()), order)
			report(t, err)
		})
	}
	wg.Wait()
	if got := s.Number(`SELECT units FROM purchased WHERE sku = 'A' AND client_id = $1`, client); got != 1 {
		t.Errorf("%d counted, want the 1 that was not cancelled", got)
	}
	s.mustHold()
}

// Each key is sent to two replicas at once, each order is cancelled, and the limit holds at every moment. Afterwards the client
// may buy all of its limit.
func TestLimit_HoldsWhileOrdersAreRepeatedAndCancelled(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := openWithRedis(t, inventory.Config{Strategy: strategy, Encode: func(o inventory.Order, err error) (inventory.Reply, error) {
				if err != nil {
					return inventory.Reply{Status: 409, Body: []byte(err.Error())}, nil
				}
				return inventory.Reply{Status: 201, Body: []byte(o.ID.String())}, nil
			}})
			const most, requests = 2, 10
			s.limited("A", 1000, most)
			replica, _ := s.another(s.cfg)
			client := uuid.New()
			sold := make(chan uuid.UUID, requests)
			var buyers, cancellers sync.WaitGroup
			for range requests {
				req := requestBy(client, uuid.NewString())
				buyers.Go(func() {
					var replies [2]inventory.Reply
					var pair sync.WaitGroup
					for n, svc := range []*inventory.Service{s.Service, replica} {
						pair.Go(func() {
							var err error
							replies[n], err = until(t.Context(), svc, req, one("A"))
							report(t, err)
						})
					}
					pair.Wait()
					if !bytes.Equal(replies[0].Body, replies[1].Body) {
						t.Errorf("one key, two answers: %s, %s", replies[0].Body, replies[1].Body)
					}
					if replies[0].Status == 201 {
						sold <- uuid.MustParse(string(replies[0].Body))
					}
				})
			}
			for range 2 {
				cancellers.Go(func() {
					for order := range sold {
						if n := s.bought("A", client); n > most {
							t.Errorf("%d sold to one client, want at most %d", n, most)
						}
						for {
							_, err := replica.Cancel(t.Context(), requestBy(client, "cancel "+order.String()), order)
							if !errors.Is(err, locking.ErrBusy) {
								report(t, err)
								break
							}
						}
					}
				})
			}
			buyers.Wait()
			close(sold)
			cancellers.Wait()
			for n := range most + 1 {
				reply, err := until(t.Context(), s.Service, requestBy(client, uuid.NewString()), one("A"))
				if want := map[bool]int{true: 201, false: 409}[n < most]; err != nil || reply.Status != want {
					t.Errorf("%d: %s, %v; want %d", n, reply.Body, err, want)
				}
			}
			s.mustHold()
		})
	}
}

// A transaction that counts without the row lock meets the CHECK. Without the CHECK the client gets more than its limit,
// and the audit finds it.
func TestLimit_TheCheckRefusesWhatTheDecisionDidNotSee(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"row", "combined"} {
		for _, checked := range []bool{true, false} {
			pause, reached, resume := locktest.PauseAt(inventory.AfterKey)
			s := openWithRedis(t, inventory.Config{Strategy: strategy, Failpoint: pause})
			s.limited("A", 10, 2)
			s.Exec(`ALTER TABLE purchased DROP CONSTRAINT purchased_sku_fkey`) // it would wait for the row lock
			if !checked {
				s.Exec(`ALTER TABLE purchased DROP CONSTRAINT purchased_within_limit`)
			}
			req := newRequest()
			refused := make(chan bool)
			go func() {
				reply, err := s.Buy(t.Context(), req, one("A"))
				report(t, err)
				refused <- isRefused(reply)
			}()
			<-reached // the count was read
			s.Exec(`INSERT INTO purchased VALUES ('A', $1, 2, 2)`, req.Client)
			resume()
			if got := <-refused; got != checked {
				t.Errorf("%s, with the CHECK %v: refused %v", strategy, checked, got)
			}
			if got := s.events.Of(inventory.GuardTripped) == 1; got != checked {
				t.Errorf("%s, with the CHECK %v: tripped %v", strategy, checked, got)
			}
			if broken := strings.Join(s.broken(), " "); !strings.Contains(broken, "I-MAX") {
				t.Errorf("%s: the audit finds no count without an order: %s", strategy, broken)
			}
		}
	}
}

// Concurrent purchases of one client read the same count if the product's row is not locked. This is what the lock is for.
func TestLimit_CountedOnceTheRowIsLocked(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"optimistic", "serializable", "advisory"} {
		s := open(t, inventory.Config{Strategy: strategy})
		sku := "counted by " + strategy // unique among tests: all schemas share advisory locks
		s.limited(sku, 10, 1)
		pause, reached, resume := locktest.PauseAt(inventory.AfterGuard)
		cfg := s.cfg
		cfg.Failpoint = pause
		late, _ := s.another(cfg)
		client := uuid.New()
		refused := make(chan bool)
		go func() {
			reply, err := late.Buy(t.Context(), requestBy(client, uuid.NewString()), one(sku))
			report(t, err)
			refused <- isRefused(reply)
		}()
		<-reached // it has read the product, and not yet the count
		cfg = s.cfg
		cfg.Strategy = "row"
		row, _ := s.another(cfg)
		if reply, err := row.Buy(t.Context(), requestBy(client, uuid.NewString()), one(sku)); err != nil || isRefused(reply) {
			t.Errorf("%s, %v", reply.Body, err)
		}
		resume()
		if !<-refused || s.bought(sku, client) != 1 {
			t.Errorf("%s: %d sold, want 1", strategy, s.bought(sku, client))
		}
		s.mustHold()
	}
}

// A purchase that has read a product without a limit runs again when the limit is set: it would not be counted.
func TestLimit_IsSetWhileAPurchaseIsAtWork(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"optimistic", "serializable"} {
		pause, reached, resume := locktest.PauseAt(inventory.AfterGuard)
		s := open(t, inventory.Config{Strategy: strategy, Failpoint: pause})
		s.stock("A", 10)
		bought := make(chan bool)
		go func() {
			reply, err := s.Buy(t.Context(), newRequest(), one("A"))
			report(t, err)
			bought <- !isRefused(reply)
		}()
		<-reached
		s.Exec(`UPDATE products SET client_max = 1 WHERE sku = 'A'`)
		resume()
		if !<-bought || s.events.Of(inventory.Retried) != 1 {
			t.Errorf("%s: refused, or not run again", strategy)
		}
		s.mustHold()
	}
}

// A purchase that has read the product without a row lock is not counted when the limit is set, and is counted when the
// limit is removed. The audit finds both, until the trigger counts anew.
func TestLimit_OfAPurchaseThatReadsWithoutARowLockIsCountedAnew(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"naive", "redis-only", "advisory", "advisory-try", "slots"} {
		for _, isSet := range []bool{true, false} {
			if strategy == "slots" && !isSet {
				continue // it locks the row of a product with a limit
			}
			pause, reached, resume := locktest.PauseAt(inventory.AfterGuard)
			s := openWithRedis(t, inventory.Config{Strategy: strategy, Failpoint: pause})
			sku := fmt.Sprintf("%s %v", strategy, isSet) // unique among tests: all schemas share advisory locks
			limit := func(most any) { s.Exec(`UPDATE products SET client_max = $1 WHERE sku = $2`, most, sku) }
			first, second := any(2), any(nil)
			if s.stock(sku, 10); strategy == "slots" { // its first purchase divides the stock, under the row lock
				cfg := s.cfg
				cfg.Failpoint = nil
				first, _ := s.another(cfg)
				if _, err := first.Buy(t.Context(), newRequest(), one(sku)); err != nil {
					t.Fatal(err)
				}
			}
			if !isSet {
				limit(first)
				first, second = second, first
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, err := s.Buy(t.Context(), newRequest(), one(sku))
				report(t, err)
			}()
			<-reached
			limit(first)
			resume()
			<-done
			if broken := strings.Join(s.broken(), " "); !strings.Contains(broken, "I-MAX") {
				t.Errorf("%s, set: %v: the audit finds nothing: %s", strategy, isSet, broken)
			}
			limit(second)
			limit(first)
			s.mustHold()
		}
	}
}

func TestLimit_MayBeSetChangedAndRemovedWhileAProductIsSold(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	s.stock("A", 100)
	client := uuid.New()
	buy := func(when string, quantity int64, refused bool) inventory.Reply {
		t.Helper()
		reply, err := s.Buy(t.Context(), requestBy(client, uuid.NewString()), []inventory.Line{{SKU: "A", Quantity: quantity}})
		if err != nil || isRefused(reply) != refused {
			t.Errorf("%s: %s, %v; want refused: %v", when, reply.Body, err, refused)
		}
		s.mustHold()
		return reply
	}
	limit := func(most any) { s.Exec(`UPDATE products SET client_max = $1 WHERE sku = 'A'`, most) }
	buy("without a limit", 5, false)
	limit(3)
	buy("with more than the first limit", 1, true)
	limit(7)
	buy("after the limit was raised", 2, false)
	buy("at the limit", 1, true)
	limit(4)
	buy("after the limit was lowered", 1, true)
	limit(nil)
	buy("after the limit was removed", 50, false)
	limit(58)
	buy("with a new limit", 2, true)
	buy("with a new limit", 1, false)
	if created, err := s.AddProduct(t.Context(), inventory.Product{SKU: "X", Currency: "EUR", ClientMax: new(int64)}); created || !errors.Is(err, inventory.ErrInvalid) {
		t.Errorf("a limit of 0: created %v, %v", created, err)
	}
}
