// SPDX-License-Identifier: MIT

package inventory_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"shop/inventory"
	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
	"shop/locking/servertest/daemon"
)

// counted counts the requests to the real store.
type counted struct {
	locking.Store
	requests atomic.Int32
}

func (c *counted) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	c.requests.Add(1)
	return c.Store.TryAcquire(ctx, keys...)
}

// journal is a log that the test can read.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

func (j *journal) lines() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Collect(strings.Lines(j.buf.String()))
}

func TestRedisRow_GoesOnWithoutRedisAndReturnsByItself(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct{ down, up func(*servertest.Server) }{
		"killed": {(*servertest.Server).Kill, (*servertest.Server).Start},
		"paused": {(*servertest.Server).Pause, (*servertest.Server).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.Start(t, daemon.Redis())
			store := &counted{Store: locksAt(t, "redis://"+server.Addr, 2*time.Second)}
			log := &journal{}
			s := open(t, inventory.Config{Strategy: "redis+row", Locks: store, Log: slog.New(slog.NewTextHandler(log, nil))})
			s.stock("A", 1000)
			buy := func() {
				if reply, err := s.Buy(t.Context(), newRequest(), one("A")); err != nil || isRefused(reply) {
					t.Errorf("%s, %v", reply.Body, err)
				}
			}
			locktest.Eventually(t, "a purchase finds Redis", func() bool { buy(); return !s.Unreachable() })
			before, said := s.events.Of(inventory.Degraded), len(log.lines())
			fault.down(server)
			store.requests.Store(0)
			start := time.Now()
			for range 20 {
				buy()
			}
			if requests, most := int(store.requests.Load()), 2+int(time.Since(start)/(400*time.Millisecond)); requests > most {
				t.Errorf("%d of 20 reached the dead store in %v, want at most %d", requests, time.Since(start), most)
			}
			if n := s.events.Of(inventory.Degraded) - before; !s.Unreachable() || n != 20 {
				t.Errorf("degraded %v, counted %d, want 20", s.Unreachable(), n)
			}
			fault.up(server)
			locktest.Eventually(t, "a purchase finds Redis back", func() bool { buy(); return !s.Unreachable() })
			if got := log.lines()[said:]; len(got) != 2 {
				t.Errorf("%d lines in the log, want one for each change:\n%s", len(got), strings.Join(got, ""))
			}
			s.mustHold()
		})
	}
}

// A probe detects without a purchase whether the lock store answers. A server may answer
// everything else and refuse writes.
func TestDegraded_IsTrueWithoutAPurchase(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct{ down, up func(*servertest.Server) }{
		"killed":    {(*servertest.Server).Kill, (*servertest.Server).Start},
		"paused":    {(*servertest.Server).Pause, (*servertest.Server).Resume},
		"read-only": {demote(t), promote(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, log := servertest.Start(t, daemon.Redis()), &journal{}
			s := open(t, inventory.Config{
				Strategy: "redis+row", Locks: locksAt(t, "redis://"+server.Addr, 2*time.Second),
				Log: slog.New(slog.NewTextHandler(log, nil)),
			})
			degraded := func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				return s.Degraded(ctx)
			}
			locktest.Eventually(t, "Redis answers", func() bool { return !degraded() })
			before := len(log.lines())
			fault.down(server)
			for range 2 { // the second probe finds it already degraded
				if !degraded() {
					t.Error("degraded is not reported")
				}
			}
			fault.up(server)
			locktest.Eventually(t, "Redis is back", func() bool { return !degraded() })
			if got := log.lines()[before:]; len(got) != 2 {
				t.Errorf("%d lines in the log, want one for each change:\n%s", len(got), strings.Join(got, ""))
			}
			client := redis.NewClient(&redis.Options{Addr: server.Addr})
			defer client.Close()
			if left, err := client.Keys(t.Context(), "*lock:*").Result(); err != nil || len(left) > 0 && name != "paused" {
				t.Errorf("%v, locks left: %q", err, left)
			}
		})
	}
}

// demote makes a server the replica of a server that does not exist: it answers, but refuses writes.
func demote(t *testing.T) func(*servertest.Server) { return replicaOf(t, "127.0.0.1", "1") }

func promote(t *testing.T) func(*servertest.Server) { return replicaOf(t, "NO", "ONE") }

func replicaOf(t *testing.T, host, port string) func(*servertest.Server) {
	return func(server *servertest.Server) {
		client := redis.NewClient(&redis.Options{Addr: server.Addr})
		defer client.Close()
		report(t, client.ReplicaOf(t.Context(), host, port).Err())
	}
}

// Without the lock in front, buyers of one row queue inside PostgreSQL. Whatever the reason,
// they use at most half of the connections, so that purchases of other products continue.
func TestRedisRow_WithoutTheLockAFewBuyAtOnceAndTheRestAreBusy(t *testing.T) {
	locktest.Slow(t, "real time-outs")
	t.Parallel()
	const buyers, most = 12, 2
	type bystander struct{}
	for name, c := range map[string]struct {
		counted inventory.EventKind
		fault   func(*servertest.Server, *shop)
	}{
		"unreachable": {inventory.Degraded, func(r *servertest.Server, _ *shop) { r.Kill() }},
		"busy":        {inventory.Bypassed, func(r *servertest.Server, s *shop) { s.lockForGood(r, "A") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, log, resume := servertest.Start(t, daemon.Redis()), &journal{}, make(chan struct{})
			var inside atomic.Int32
			s := open(t, inventory.Config{})
			cfg := s.cfg
			cfg.Strategy, cfg.Locks = "redis+row", locksAt(t, "redis://"+server.Addr, 10*time.Second)
			cfg.Lock.MaxWait = 2 * time.Second // enough for each buyer to get a busy reply: no reply is counted differently
			cfg.Log = slog.New(slog.NewTextHandler(log, nil))
			cfg.Failpoint = func(ctx context.Context, step inventory.Step, _ string) {
				if step == inventory.AfterAcquire && ctx.Value(bystander{}) == nil {
					inside.Add(1)
					<-resume
				}
			}
			cfg.Pool = smallPool(t, s.Pool, 2*most)
			s.cfg = cfg
			s.Service, s.events = s.another(cfg)
			s.stock("A", 2*buyers)
			s.stock("B", 1)
			c.fault(server, s)
			answers := make(chan error, buyers)
			for range buyers {
				go func() { _, err := s.Buy(t.Context(), newRequest(), one("A")); answers <- err }()
			}
			locktest.Eventually(t, "each buyer is at the row, or refused", func() bool { return int(inside.Load())+len(answers) == buyers })
			if got := int(inside.Load()); got != most {
				t.Errorf("%d of %d are at the row, want %d", got, buyers, most)
			}
			if name == "busy" { // the lock of B is free
				if _, err := s.Buy(context.WithValue(t.Context(), bystander{}, true), newRequest(), one("B")); err != nil {
					t.Errorf("a buyer of another product: %v", err)
				}
			}
			close(resume)
			for range buyers {
				if err := <-answers; err != nil && !errors.Is(err, locking.ErrBusy) {
					t.Errorf("%v, want ErrBusy", err)
				}
			}
			if shed, alone := s.events.Of(inventory.Shed), s.events.Of(c.counted); shed != buyers-most || alone != most {
				t.Errorf("%d shed, %d %s, want %d and %d", shed, alone, c.counted, buyers-most, most)
			}
			if got := log.lines(); len(got) != 1 {
				t.Errorf("%d lines in the log, want 1:\n%s", len(got), strings.Join(got, ""))
			}
			if _, err := s.Buy(t.Context(), newRequest(), one("A")); err != nil {
				t.Errorf("the slots were not released: %v", err)
			}
			s.mustHold()
		})
	}
}

// smallPool is pool with fewer connections.
func smallPool(t *testing.T, pool *pgxpool.Pool, size int32) *pgxpool.Pool {
	t.Helper()
	cfg := pool.Config()
	cfg.MaxConns = size
	small, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(small.Close)
	return small
}

// lockForGood sets a product's lock without a TTL, as an operator might do by hand.
func (s *shop) lockForGood(server *servertest.Server, sku string) {
	s.T.Helper()
	if _, err := s.cfg.Locks.TryAcquire(s.T.Context(), "product/"+sku); err != nil {
		s.T.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	names, err := client.Keys(s.T.Context(), "*lock:product/"+sku).Result()
	if err != nil || len(names) != 1 || !client.Persist(s.T.Context(), names[0]).Val() {
		s.T.Fatalf("make %q stay: %v", names, err)
	}
}

func TestRedisOnly_SellsNothingWithoutRedis(t *testing.T) {
	t.Parallel()
	server := servertest.Start(t, daemon.Redis())
	s := open(t, inventory.Config{Strategy: "redis-only", Locks: locksAt(t, "redis://"+server.Addr, 2*time.Second)})
	s.stock("A", 5)
	sold := newRequest()
	first, err := s.Buy(t.Context(), sold, one("A"))
	if err != nil {
		t.Fatal(err)
	}
	server.Kill()
	for range 3 {
		if _, err := s.Buy(t.Context(), newRequest(), one("A")); !errors.Is(err, locking.ErrBusy) {
			t.Errorf("%v, want ErrBusy", err)
		}
	}
	if got := s.left("A"); got != 4 {
		t.Errorf("%d left, want 4", got)
	}
	if again, err := s.Buy(t.Context(), sold, one("A")); err != nil || !bytes.Equal(again.Body, first.Body) {
		t.Errorf("a replay needs no Redis: %+v, %v", again, err)
	}
}
