package inventory_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

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
			req := ask()
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

// Two requests with one key that lock different rows meet nowhere but at the
// key: only the order of locks and the wait of the INSERT keep them apart.
func TestKey_SameForDifferentRequestsLetsOneThrough(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{Failpoint: meet(2)})
	s.stock("A", 1)
	s.stock("B", 1)
	first := ask()
	second := first
	second.Fingerprint[0]++
	errs := make(chan error, 2)
	go func() { _, err := s.Buy(t.Context(), first, one("A")); errs <- err }()
	go func() { _, err := s.Buy(t.Context(), second, one("B")); errs <- err }()
	a, b := <-errs, <-errs
	if (a == nil) == (b == nil) || !errors.Is(errors.Join(a, b), inventory.ErrKeyReused) {
		t.Errorf("%v and %v, want one nil and one ErrKeyReused", a, b)
	}
	if got := s.orders(); got != 1 {
		t.Errorf("%d orders, want 1", got)
	}
	s.mustHold()
}

func TestKey_OfAnotherRequestIsRefusedWithoutEffect(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	s.stock("A", 5)
	req := ask()
	if _, err := s.Buy(t.Context(), req, one("A")); err != nil {
		t.Fatal(err)
	}
	req.Fingerprint[0]++
	if _, err := s.Buy(t.Context(), req, one("A")); !errors.Is(err, inventory.ErrKeyReused) {
		t.Errorf("%v, want ErrKeyReused", err)
	}
	if got := s.left("A"); got != 4 {
		t.Errorf("%d left, want 4", got)
	}
}

func TestKey_BelongsToItsClient(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	s.stock("A", 5)
	for range 2 {
		if reply, err := s.Buy(t.Context(), askBy(uuid.New(), "same"), one("A")); err != nil || reply.Replayed {
			t.Errorf("%+v, %v", reply, err)
		}
	}
	if got := s.left("A"); got != 3 {
		t.Errorf("%d left, want 3", got)
	}
}

func TestKey_OutOfStockIsStoredAndReplayedAfterRestock(t *testing.T) {
	t.Parallel()
	for _, strategy := range append(safe(), "naive", "redis-only") {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := openWithRedis(t, inventory.Config{Strategy: strategy})
			s.stock("A", 0)
			req := ask()
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

// A client has many orders: each key has the answer to its own.
func TestKey_ReplaysItsOwnAnswer(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	s.stock("A", 2)
	client := uuid.New()
	replies := map[string]inventory.Reply{}
	for _, key := range []string{"1", "2", "3"} { // the third is refused
		reply, err := s.Buy(t.Context(), askBy(client, key), one("A"))
		if err != nil || isRefused(reply) != (key == "3") {
			t.Fatalf("%s: %s, %v", key, reply.Body, err)
		}
		replies[key] = reply
	}
	for key, first := range replies {
		again, err := s.Buy(t.Context(), askBy(client, key), one("A"))
		if err != nil || !again.Replayed || again.Status != first.Status || !bytes.Equal(again.Body, first.Body) {
			t.Errorf("%s: %s, %v, want %s", key, again.Body, err, first.Body)
		}
		if key == "3" {
			continue
		}
		var id uuid.UUID
		if err := s.pool.QueryRow(t.Context(), `SELECT id FROM orders WHERE client_id = $1 AND idempotency_key = $2`, client, key).Scan(&id); err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(again.Body, []byte(id.String())) {
			t.Errorf("%s: %s is not the answer of order %s", key, again.Body, id)
		}
	}
	s.mustHold()
}

func TestKey_ReplaysThoughTheProductVanished(t *testing.T) {
	t.Parallel()
	s := openWithRedis(t, inventory.Config{Strategy: "redis+row"})
	s.stock("A", 0)
	req := ask()
	first, err := s.Buy(t.Context(), req, one("A"))
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"stock_movements", "products"} {
		if _, err := s.pool.Exec(t.Context(), "DELETE FROM "+table); err != nil {
			t.Fatal(err)
		}
	}
	again, err := s.Buy(t.Context(), req, one("A"))
	if err != nil || !bytes.Equal(again.Body, first.Body) {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestPurge_ForgetsTheOldAndKeepsTheRest(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	s.stock("A", 5)
	requests := map[string]inventory.Request{}
	for name, age := range map[string]string{"old": "24 hours 1 second", "younger than a day": "23 hours 59 minutes", "fresh": "0"} {
		req := ask()
		requests[name] = req
		if _, err := s.Buy(t.Context(), req, one("A")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.pool.Exec(t.Context(), `UPDATE order_keys SET created_at = now() - $2::interval WHERE key = $1`, req.Key, age); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := inventory.Purge(t.Context(), s.pool, 24*time.Hour); n != 1 || err != nil {
		t.Errorf("purged %d, %v, want 1", n, err)
	}
	for name, req := range requests {
		if reply, err := s.Buy(t.Context(), req, one("A")); err != nil || reply.Replayed != (name != "old") {
			t.Errorf("%s: replayed %v, %v", name, reply.Replayed, err)
		}
	}
	for _, short := range []time.Duration{0, time.Hour, 24*time.Hour - time.Second} {
		if _, err := inventory.Purge(t.Context(), s.pool, short); !errors.Is(err, inventory.ErrInvalid) {
			t.Errorf("%v: %v, want ErrInvalid: younger than a day is too young", short, err)
		}
	}
}
