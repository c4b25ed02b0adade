// SPDX-License-Identifier: MIT

package inventory_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"shop/inventory"
	"shop/locking"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/servertest"
)

// behindProxy returns a pool whose connections go through a proxy.
func (s *shop) behindProxy() (*servertest.Proxy, *pgxpool.Pool) {
	s.T.Helper()
	p, through := servertest.ProxyURL(s.T, s.URL)
	return p, pgtest.Pool(s.T, through, pgtest.Unhurried) // a test may hold a COMMIT
}

// armed opens a shop behind a proxy. hurt gets the last message, the one with COMMIT, of
// the first purchase or cancel after start.Store(true): Encode runs just before it.
func armed(t *testing.T, strategy string, hurt func(*servertest.Proxy) servertest.Interceptor) (s *shop, p *servertest.Proxy, start *atomic.Bool) {
	t.Helper()
	s = openWithRedis(t, inventory.Config{Strategy: "row"})
	start = &atomic.Bool{}
	cfg := s.cfg
	cfg.Strategy = strategy
	p, cfg.Pool = s.behindProxy()
	cfg.Encode = func(o inventory.Order, refusal error) (inventory.Reply, error) {
		if start.CompareAndSwap(true, false) {
			once, _ := servertest.Nth(1, hurt(p))
			p.OnRequest(once)
		}
		if refusal != nil {
			return inventory.Reply{Status: 409, Body: []byte(refusal.Error())}, nil
		}
		return inventory.Reply{Status: 201, Body: []byte(o.ID.String())}, nil
	}
	s.armedCfg = cfg
	s.Service, s.events = s.another(cfg)
	s.stock("WARM", 1)
	// So that all statements are prepared: COMMIT is not in the message that prepares them.
	warm := newRequest()
	if _, err := s.Cancel(t.Context(), requestBy(warm.Client, "c"), s.ordered(warm, one("WARM")...)); err != nil {
		t.Fatal(err)
	}
	return s, p, start
}

func TestCommit_WithoutReplyIsDecidedByTheSameKey(t *testing.T) {
	t.Parallel()
	for name, lose := range servertest.Cuts {
		for _, strategy := range append(safe(), "naive", "redis-only", "cancel") {
			t.Run(name+"/"+strategy, func(t *testing.T) {
				t.Parallel()
				own := strategy
				if strategy == "cancel" {
					own = "row"
				}
				s, _, start := armed(t, own, func(*servertest.Proxy) servertest.Interceptor { return lose })
				s.stock("A", 1)
				buy := func() (inventory.Reply, error) { return s.Buy(t.Context(), newRequest(), one("A")) }
				left := int64(0)
				if strategy == "cancel" {
					buyer := newRequest()
					id := s.ordered(buyer, one("A")...)
					buy = func() (inventory.Reply, error) { return s.Cancel(t.Context(), requestBy(buyer.Client, "c"), id) }
					left = 1
				}
				start.Store(true)
				if reply, err := buy(); err != nil || reply.Status != 201 {
					t.Fatalf("%+v, %v", reply, err)
				}
				if a, r := s.events.Of(inventory.Ambiguous), s.events.Of(inventory.Resolved); a != 1 || r != 1 {
					t.Errorf("%d ambiguous, %d resolved, want 1 and 1", a, r)
				}
				if got := s.left("A"); got != left {
					t.Errorf("%d left, want %d", got, left)
				}
				s.mustHold()
			})
		}
	}
}

// The lease ends before the COMMIT is decided. The row lock and the key decide it without the lease.
func TestCommit_IsDecidedEvenWhenTheLeaseEndsBefore(t *testing.T) {
	t.Parallel()
	for name, lose := range servertest.Cuts {
		store, steal := stealable(t, 2*time.Second)
		s, p, start := armed(t, "row", func(p *servertest.Proxy) servertest.Interceptor {
			return func(bytes []byte, client, server net.Conn) bool {
				steal(context.Background())
				p.Refuse()
				return lose(bytes, client, server)
			}
		})
		cfg := s.armedCfg
		cfg.Strategy, cfg.Locks = "redis+row", store
		cfg.Lock.Observer = func(e locking.Event) {
			if e.Kind == locking.Lost {
				p.Up(t)
			}
		}
		s.Service, s.events = s.another(cfg)
		s.stock("A", 1)
		start.Store(true)
		reply, err := s.Buy(t.Context(), newRequest(), one("A"))
		if err != nil || reply.Status != 201 {
			t.Errorf("%s: %+v, %v", name, reply, err)
		}
		if got := s.events.Of(inventory.Resolved); got != 1 {
			t.Errorf("%s: %d resolved, want 1", name, got)
		}
		s.mustHold()
	}
}

func TestCommit_IsNotCutByALostLease(t *testing.T) {
	t.Parallel()
	store, steal := stealable(t, 3*time.Second)
	lost := make(chan struct{})
	s, _, start := armed(t, "row", func(*servertest.Proxy) servertest.Interceptor {
		return func([]byte, net.Conn, net.Conn) bool {
			steal(context.Background())
			<-lost
			return true
		}
	})
	cfg := s.armedCfg
	cfg.Strategy, cfg.Locks = "redis+row", store
	cfg.Lock.Observer = func(e locking.Event) {
		if e.Kind == locking.Lost {
			close(lost)
		}
	}
	s.Service, s.events = s.another(cfg)
	s.stock("A", 1)
	start.Store(true)
	reply, err := s.Buy(t.Context(), newRequest(), one("A"))
	if err != nil || reply.Status != 201 || s.events.Of(inventory.Ambiguous) != 0 {
		t.Errorf("%+v, %v, %d ambiguous: the COMMIT was on its way", reply, err, s.events.Of(inventory.Ambiguous))
	}
	s.mustHold()
}
