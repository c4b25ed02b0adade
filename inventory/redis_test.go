// SPDX-License-Identifier: MIT

package inventory_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"shop/inventory"
	"shop/locking"
	"shop/locking/driver"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/locking/redislock"
	"shop/locking/servertest"
)

// openWithRedis is open with a lock store on the shared server.
func openWithRedis(t testing.TB, cfg inventory.Config) *shop {
	t.Helper()
	cfg.Locks = locksAt(t, servertest.Env(t, "SHOP_REDIS_URL"), 2*time.Second)
	return open(t, cfg)
}

// locksAt makes a store with its own key prefix.
func locksAt(t testing.TB, redisURL string, ttl time.Duration) *driver.Store {
	t.Helper()
	return locksUnder(t, redisURL, ttl, uuid.NewString())
}

func locksUnder(t testing.TB, redisURL string, ttl time.Duration, prefix string) *driver.Store {
	t.Helper()
	client, err := redislock.Connect(redisURL, ttl)
	if err != nil {
		t.Fatal(err)
	}
	store, err := redislock.New(client, ttl, redislock.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		store.Close()
		client.Close()
	})
	return store
}

// stealable returns a lock store on the shared server, and a function that deletes its keys.
func stealable(t *testing.T, ttl time.Duration) (store *driver.Store, steal func(context.Context)) {
	t.Helper()
	stores, steal := stealableByTwo(t, ttl)
	return stores[0], steal
}

// stealableByTwo is stealable, with the stores of two processes: in each, a request waits for the one before it, whatever Redis says.
func stealableByTwo(t *testing.T, ttl time.Duration) (stores [2]*driver.Store, steal func(context.Context)) {
	t.Helper()
	opts, err := redis.ParseURL(servertest.Env(t, "SHOP_REDIS_URL"))
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() { client.Close() })
	prefix := uuid.NewString()
	for i := range stores {
		stores[i] = locksUnder(t, servertest.Env(t, "SHOP_REDIS_URL"), ttl, prefix)
	}
	return stores, func(ctx context.Context) {
		names, err := client.Keys(ctx, prefix+"*product/*").Result()
		if err == nil && len(names) == 0 {
			err = errors.New("no lock key there")
		}
		if err == nil {
			err = client.Del(ctx, names...).Err()
		}
		if err != nil {
			t.Errorf("steal the lock: %v", err)
		}
	}
}

func TestRedisOnly_HoldsAsLongAsItsLockDoes(t *testing.T) {
	t.Parallel()
	s := openWithRedis(t, inventory.Config{Strategy: "redis-only"})
	s.stock("A", 5)
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			if _, err := until(t.Context(), s.Service, newRequest(), one("A")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := s.orders(); got != 5 {
		t.Errorf("%d sold, want 5", got)
	}
	s.mustHold()
}

func TestRedisOnly_SellsTwiceWhenItsLockIsTakenAway(t *testing.T) {
	t.Parallel()
	stores, steal := stealableByTwo(t, time.Minute)
	both := locktest.MeetAt(2, inventory.AfterGuard)
	var first atomic.Bool
	s := open(t, inventory.Config{
		Strategy: "redis-only", Locks: stores[0],
		Failpoint: func(ctx context.Context, step inventory.Step, strategy string) {
			if step == inventory.AfterGuard && first.CompareAndSwap(false, true) {
				steal(ctx) // lets the other buyer read what this one is about to overwrite
			}
			both(ctx, step, strategy)
		},
	})
	s.cfg.Pool = pgtest.Pool(t, s.URL, pgtest.Unhurried)
	s.Service, s.events = s.another(s.cfg)
	s.cfg.Locks = stores[1]
	beside, _ := s.another(s.cfg)
	s.stock("A", 1)
	buyAtOnce(t, []*inventory.Service{s.Service, beside}, one("A"))
	if got := s.orders(); got != 2 {
		t.Errorf("%d sold of 1: the negative control did not fail", got)
	}
	if len(s.broken()) == 0 {
		t.Error("the invariants hold: the check is blind")
	}
}

func TestRedisRow_HoldsWhenItsLockIsTakenAway(t *testing.T) {
	t.Parallel()
	stores, steal := stealableByTwo(t, time.Minute) // no renewal notices
	var s *shop
	s = open(t, inventory.Config{
		Strategy: "redis+row", Locks: stores[0],
		Failpoint: locktest.OnceAt(inventory.AfterGuard, func(ctx context.Context) {
			steal(ctx)
			locktest.Eventually(t, "the second holder waits for the row", func() bool { return s.Waiting() > 0 })
		}),
	})
	s.cfg.Pool = pgtest.Pool(t, s.URL, pgtest.Unhurried)
	s.Service, s.events = s.another(s.cfg)
	s.cfg.Locks = stores[1]
	beside, _ := s.another(s.cfg)
	s.stock("A", 1)
	buyAtOnce(t, []*inventory.Service{s.Service, beside}, one("A"))
	if got := s.orders(); got != 1 {
		t.Errorf("%d sold, want 1", got)
	}
	s.mustHold()
}

func TestRedis_LeaseLostBeforeCommitDidNothing(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"redis-only", "redis+row"} {
		for _, step := range []inventory.Step{inventory.AfterAcquire, inventory.AfterGuard, inventory.BeforeCommit} {
			t.Run(strategy+"/"+string(step), func(t *testing.T) {
				t.Parallel()
				store, steal := stealable(t, 2*time.Second)
				s := open(t, inventory.Config{
					Strategy: strategy, Locks: store,
					Failpoint: locktest.OnceAt(step, func(ctx context.Context) {
						steal(ctx)
						<-ctx.Done() // the renewal notices
					}),
				})
				s.stock("A", 1)
				req := newRequest()
				if _, err := s.Buy(t.Context(), req, one("A")); !errors.Is(err, locking.ErrLost) || s.orders() != 0 {
					t.Errorf("%v, %d orders, want ErrLost and none", err, s.orders())
				}
				if reply, err := s.Buy(t.Context(), req, one("A")); err != nil || isRefused(reply) || reply.Replayed {
					t.Errorf("the same key again: %+v, %v", reply, err)
				}
				s.mustHold()
			})
		}
	}
}

func TestRedis_LeaseLostAfterCommitChangesNothing(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"redis-only", "redis+row"} {
		store, steal := stealable(t, 2*time.Second)
		s := open(t, inventory.Config{Strategy: strategy, Locks: store, Failpoint: locktest.OnceAt(inventory.AfterCommit, steal)})
		s.stock("A", 1)
		if reply, err := s.Buy(t.Context(), newRequest(), one("A")); err != nil || isRefused(reply) {
			t.Errorf("%s, %v", reply.Body, err)
		}
		s.mustHold()
	}
}

// A busy lock is not an unreachable store. redis-only has no other guard and sells
// nothing; redis+row has the row lock.
func TestRedis_BusyIsNotUnreachable(t *testing.T) {
	t.Parallel()
	for strategy, want := range map[string]struct {
		err  error
		sold int64
	}{
		"redis-only": {locking.ErrBusy, 0},
		"redis+row":  {nil, 1},
	} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			locks := locksAt(t, servertest.Env(t, "SHOP_REDIS_URL"), 20*time.Second) // an answer may come late on a busy machine
			s := open(t, inventory.Config{Strategy: strategy, Locks: locks, Lock: locking.Options{MaxWait: 2 * time.Second}})
			s.stock("A", 2)
			err := locking.Do(t.Context(), s.cfg.Locks, locking.Options{}, []string{"product/A"}, func(context.Context, locking.Lease) error {
				if _, err := s.Buy(t.Context(), newRequest(), one("A")); !errors.Is(err, want.err) {
					t.Errorf("%v, want %v", err, want.err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			if got := s.events.Of(inventory.Bypassed); s.orders() != want.sold || got != int(want.sold) {
				t.Errorf("%d sold, %d without the lock, want %d", s.orders(), got, want.sold)
			}
			if s.Unreachable() || s.events.Of(inventory.Degraded) != 0 {
				t.Error("a held lock was taken for a dead store")
			}
			if _, err := s.Buy(t.Context(), newRequest(), one("A")); err != nil || s.events.Of(inventory.Bypassed) != int(want.sold) {
				t.Errorf("with the lock free again: %v", err)
			}
			s.mustHold()
		})
	}
}
