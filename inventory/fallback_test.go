package inventory_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"shop/inventory"
	"shop/locking"
)

// counted asks the real store, and counts.
type counted struct {
	locking.Store
	asked atomic.Int32
}

func (c *counted) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	c.asked.Add(1)
	return c.Store.TryAcquire(ctx, keys...)
}

// journal is a log to look into.
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
	return strings.Split(strings.TrimSpace(j.buf.String()), "\n")
}

func TestRedisRow_GoesOnWithoutRedisAndReturnsByItself(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct{ down, up func(*redisServer) }{
		"killed": {(*redisServer).kill, (*redisServer).start},
		"paused": {(*redisServer).pause, (*redisServer).resume},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startRedis(t)
			store := &counted{Store: locksAt(t, server.url(), 2*time.Second)}
			log := &journal{}
			s := open(t, inventory.Config{Strategy: "redis+row", Locks: store, Log: slog.New(slog.NewTextHandler(log, nil))})
			s.stock("A", 1000)
			buy := func() {
				if reply, err := s.Buy(t.Context(), ask(), one("A")); err != nil || isRefused(reply) {
					t.Errorf("%s, %v", reply.Body, err)
				}
			}
			buy()
			if s.Degraded() || s.events.of(inventory.Degraded) != 0 {
				t.Fatal("degraded with Redis there")
			}
			fault.down(server)
			store.asked.Store(0)
			start := time.Now()
			for range 20 {
				buy()
			}
			if asked, most := int(store.asked.Load()), 2+int(time.Since(start)/(400*time.Millisecond)); asked > most {
				t.Errorf("%d of 20 asked the dead store in %v, want at most %d", asked, time.Since(start), most)
			}
			if !s.Degraded() || s.events.of(inventory.Degraded) != 20 {
				t.Errorf("degraded %v, counted %d, want 20", s.Degraded(), s.events.of(inventory.Degraded))
			}
			fault.up(server)
			eventually(t, "a purchase finds Redis back", func() bool { buy(); return !s.Degraded() })
			if got := log.lines(); len(got) != 2 {
				t.Errorf("%d lines in the log, want one for each change:\n%s", len(got), strings.Join(got, "\n"))
			}
			s.mustHold()
		})
	}
}

func (r *redisServer) pause() {
	pid := r.pid()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		r.t.Fatal(err)
	}
	r.stopped = pid
}

func (r *redisServer) resume() {
	if err := syscall.Kill(r.stopped, syscall.SIGCONT); err != nil {
		r.t.Fatal(err)
	}
}

func TestRedisRow_WithoutRedisAFewGoOnAndTheRestComeAgain(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	reached, resume := make(chan struct{}), make(chan struct{})
	s := open(t, inventory.Config{
		Strategy: "redis+row", DegradedMax: 1, Locks: locksAt(t, server.url(), 2*time.Second),
		Failpoint: pauseAt(inventory.AfterGuard, reached, resume),
	})
	server.kill()
	s.stock("A", 5)
	s.stock("B", 5)
	done := make(chan error)
	go func() { _, err := s.Buy(t.Context(), ask(), one("A")); done <- err }()
	<-reached
	req := ask()
	if _, err := s.Buy(t.Context(), req, one("B")); !errors.Is(err, locking.ErrBusy) {
		t.Errorf("%v, want ErrBusy: the only slot is taken", err)
	}
	if got := s.events.of(inventory.Shed); got != 1 {
		t.Errorf("%d shed, want 1", got)
	}
	close(resume)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := s.Buy(t.Context(), req, one("B")); err != nil {
		t.Errorf("the slot was not given back: %v", err)
	}
}

func TestRedisOnly_SellsNothingWithoutRedis(t *testing.T) {
	t.Parallel()
	server := startRedis(t)
	s := open(t, inventory.Config{Strategy: "redis-only", Locks: locksAt(t, server.url(), 2*time.Second)})
	s.stock("A", 5)
	sold := ask()
	first, err := s.Buy(t.Context(), sold, one("A"))
	if err != nil {
		t.Fatal(err)
	}
	server.kill()
	for range 3 {
		if _, err := s.Buy(t.Context(), ask(), one("A")); !errors.Is(err, locking.ErrBusy) {
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
