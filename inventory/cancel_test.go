// SPDX-License-Identifier: MIT

package inventory_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/google/uuid"

	"shop/inventory"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
)

// ordered buys, and returns the order's id from the database.
func (s *shop) ordered(req inventory.Request, lines ...inventory.Line) (id uuid.UUID) {
	s.T.Helper()
	if reply, err := s.Buy(s.T.Context(), req, lines); err != nil || isRefused(reply) {
		s.T.Fatalf("%s, %v", reply.Body, err)
	}
	err := s.Pool.QueryRow(s.T.Context(), `SELECT id FROM orders WHERE client_id = $1 AND idempotency_key = $2`, req.Client, req.Key).Scan(&id)
	if err != nil {
		s.T.Fatal(err)
	}
	return id
}

func TestCancel_ReturnsTheStockOnceForManyRequests(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	s.stock("A", 5)
	s.stock("B", 5)
	buyer := newRequest()
	id := s.ordered(buyer, inventory.Line{SKU: "B", Quantity: 2}, inventory.Line{SKU: "A", Quantity: 3})
	replica, _ := s.another(s.cfg)
	const senders = 8
	var refused [senders]bool
	var wg sync.WaitGroup
	for n := range senders {
		svc := []*inventory.Service{s.Service, replica}[n%2]
		wg.Go(func() {
			reply, err := svc.Cancel(t.Context(), requestBy(buyer.Client, uuid.NewString()), id)
			if err != nil {
				t.Error(err)
			}
			refused[n] = isRefused(reply)
		})
	}
	wg.Wait()
	done := 0
	for _, r := range refused {
		if !r {
			done++
		}
	}
	if done != 1 {
		t.Errorf("%d cancelled it, want 1", done)
	}
	if a, b := s.left("A"), s.left("B"); a != 5 || b != 5 {
		t.Errorf("stock %d and %d, want 5 and 5", a, b)
	}
	o, err := s.Order(t.Context(), buyer.Client, id)
	if err != nil || o.Status != inventory.Cancelled || o.CancelledAt == nil || len(o.Lines) != 2 || o.Lines[0].SKU != "A" || o.Total != 500 {
		t.Errorf("%+v, %v", o, err)
	}
	s.mustHold()
}

func TestCancel_TheSecondWaitsForTheFirstAndReadsItsResult(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	s.stock("A", 1)
	buyer := newRequest()
	id := s.ordered(buyer, one("A")...)
	second := make(chan inventory.Reply)
	cfg := s.cfg
	cfg.Pool = pgtest.Pool(t, s.URL, pgtest.Unhurried)
	cfg.Failpoint = locktest.OnceAt(inventory.AfterGuard, func(context.Context) {
		go func() {
			reply, err := s.Cancel(t.Context(), requestBy(buyer.Client, "2"), id)
			report(t, err)
			second <- reply
		}()
		locktest.Eventually(t, "the second cancel waits", func() bool { return s.Waiting() > 0 })
	})
	first, _ := s.another(cfg)
	if reply, err := first.Cancel(t.Context(), requestBy(buyer.Client, "1"), id); err != nil || isRefused(reply) {
		t.Errorf("first: %s, %v", reply.Body, err)
	}
	if reply := <-second; !isRefused(reply) {
		t.Errorf("second: %s, want a refusal", reply.Body)
	}
	s.mustHold()
}

func TestCancel_ReplaysItsAnswerAndItsRefusal(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	s.stock("A", 1)
	buyer := newRequest()
	id := s.ordered(buyer, one("A")...)
	first, second := requestBy(buyer.Client, "1"), requestBy(buyer.Client, "2")
	for _, req := range []inventory.Request{first, second} {
		reply, err := s.Cancel(t.Context(), req, id)
		if err != nil || reply.Replayed || isRefused(reply) != (req == second) {
			t.Fatalf("%s: %s, %v", req.Key, reply.Body, err)
		}
		again, err := s.Cancel(t.Context(), req, id)
		if err != nil || !again.Replayed || !bytes.Equal(again.Body, reply.Body) {
			t.Errorf("%s again: %s, %v", req.Key, again.Body, err)
		}
	}
	if got := s.left("A"); got != 1 {
		t.Errorf("%d left, want 1", got)
	}
	s.mustHold()
}

// Another client's cancel must neither wait for the owner's rows nor lock them.
func TestCancel_StrangerWaitsInNoQueue(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	s.stock("A", 1)
	id := s.ordered(newRequest(), one("A")...)
	free := int64(-1)
	cfg := s.cfg
	cfg.Pool = pgtest.Pool(t, s.URL, "lock_timeout=100")
	cfg.Failpoint = locktest.OnceAt(inventory.AfterGuard, func(context.Context) {
		free = s.Number(`
			SELECT (SELECT count(*) FROM (SELECT FROM products FOR UPDATE SKIP LOCKED) p)
			     + (SELECT count(*) FROM (SELECT FROM orders FOR UPDATE SKIP LOCKED) o)`)
	})
	stranger, _ := s.another(cfg)
	if _, err := stranger.Cancel(t.Context(), newRequest(), id); !errors.Is(err, inventory.ErrNotFound) || free != 2 {
		t.Errorf("%v, %d of 2 rows are free", err, free)
	}
	letGo := s.Hold(`SELECT FROM products, orders FOR UPDATE`)
	if _, err := stranger.Cancel(t.Context(), newRequest(), id); !errors.Is(err, inventory.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound: it waited for the rows", err)
	}
	letGo()
	s.mustHold()
}

func TestCancel_OfAnothersOrderFindsNothing(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	s.stock("A", 1)
	buyer := newRequest()
	id := s.ordered(buyer, one("A")...)
	req := newRequest()
	defer s.Hold(`SELECT FROM products FOR UPDATE`)() // another client's request does not wait for these rows
	defer s.Hold(`SELECT FROM orders FOR UPDATE`)()
	if _, err := s.Cancel(t.Context(), req, id); !errors.Is(err, inventory.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
	if _, err := s.Cancel(t.Context(), req, uuid.New()); !errors.Is(err, inventory.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound: and the key is still free", err)
	}
	if _, err := s.Order(t.Context(), req.Client, id); !errors.Is(err, inventory.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
	if o, err := s.Order(t.Context(), buyer.Client, id); err != nil || o.Status != inventory.Confirmed {
		t.Errorf("%+v, %v", o, err)
	}
	s.mustHold()
}
