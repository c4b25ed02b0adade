// SPDX-License-Identifier: MIT

package inventory_test

import (
	"bytes"
	"sync"
	"testing"

	"github.com/google/uuid"

	"shop/inventory"
)

func TestKey_SameAtTheSameMomentHasOneEffectAndOneBody(t *testing.T) {
	t.Parallel()
	for _, strategy := range append(safe(), "naive", "redis-only") {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := openWithRedis(t, inventory.Config{Strategy: strategy})
			s.stock("A", 10)
			replica, _ := s.another(s.cfg)
			req := newRequest()
			const senders = 8
			var bodies [senders][]byte
			var wg sync.WaitGroup
			for n := range senders {
				svc := []*inventory.Service{s.Service, replica}[n%2]
				wg.Go(func() {
					reply, err := until(t.Context(), svc, req, one("A"))
					if err != nil {
						t.Error(err)
					}
					bodies[n] = reply.Body
				})
			}
			wg.Wait()
			for _, b := range bodies {
				if !bytes.Equal(b, bodies[0]) {
					t.Errorf("bodies differ: %s and %s", b, bodies[0])
				}
			}
			if got := s.left("A"); got != 9 {
				t.Errorf("%d left, want 9", got)
			}
			s.mustHold()
		})
	}
}

// A client's keys are independent: each replays the reply of its own purchase.
func TestKey_ReplaysItsOwnPurchaseOfSeveral(t *testing.T) {
	t.Parallel()
	for _, strategy := range append(safe(), "naive", "redis-only") {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := openWithRedis(t, inventory.Config{Strategy: strategy})
			s.stock("A", 10)
			client, first := uuid.New(), map[string]inventory.Reply{}
			for _, key := range []string{"1", "2", "3"} {
				reply, err := s.Buy(t.Context(), requestBy(client, key), one("A"))
				if err != nil || isRefused(reply) {
					t.Fatalf("%s, %v", reply.Body, err)
				}
				first[key] = reply
			}
			for key, want := range first {
				again, err := s.Buy(t.Context(), requestBy(client, key), one("A"))
				if err != nil || !again.Replayed || !bytes.Equal(again.Body, want.Body) {
					t.Errorf("key %s: %+v, %v: want %s again", key, again, err, want.Body)
				}
			}
			if got := s.left("A"); got != 7 {
				t.Errorf("%d left, want 7", got)
			}
			s.mustHold()
		})
	}
}

func TestKey_OutOfStockIsStoredAndReplayedAfterRestock(t *testing.T) {
	t.Parallel()
	for _, strategy := range append(safe(), "naive", "redis-only") {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := openWithRedis(t, inventory.Config{Strategy: strategy})
			s.stock("A", 0)
			req := newRequest()
			first, err := s.Buy(t.Context(), req, one("A"))
			if err != nil || !isRefused(first) {
				t.Fatalf("%s, %v", first.Body, err)
			}
			s.restock("A", 5)
			again, err := s.Buy(t.Context(), req, one("A"))
			if err != nil || !again.Replayed || !bytes.Equal(again.Body, first.Body) {
				t.Errorf("%+v, %v: want the first answer", again, err)
			}
			if got := s.left("A"); got != 5 {
				t.Errorf("%d left, want 5", got)
			}
			s.mustHold()
		})
	}
}

func TestKey_ReplaysThoughTheProductVanished(t *testing.T) {
	t.Parallel()
	s := openWithRedis(t, inventory.Config{Strategy: "redis+row"})
	s.stock("A", 0)
	req := newRequest()
	first, err := s.Buy(t.Context(), req, one("A"))
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"stock_movements", "products"} {
		s.Exec("DELETE FROM " + table)
	}
	again, err := s.Buy(t.Context(), req, one("A"))
	if err != nil || !bytes.Equal(again.Body, first.Body) {
		t.Errorf("%+v, %v", again, err)
	}
}
