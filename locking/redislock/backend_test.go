// SPDX-License-Identifier: MIT

package redislock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/locktest"
	"shop/locking/redislock/redistest"
)

// target is a kind of Redis, and of Store, to run on.
type target struct {
	redistest.Target
	scripts func(*scripts)                    // makes the driver wrong; nil: it is right
	broken  func(locking.Store) locking.Store // makes the Store wrong; nil: it is right
}

// open is a locktest.Open. Each Backend has a key space of its own.
func (g target) open(t testing.TB) locktest.Backend {
	t.Helper()
	return g.Backend(t, tuned, func(client redis.UniversalClient, ttl time.Duration, prefix string) (locking.Store, error) {
		d, err := newLocks(client, ttl, Options{Prefix: prefix, HashTag: g.Tag})
		if err != nil {
			return nil, err
		}
		if g.scripts != nil {
			g.scripts(&d.scripts)
		}
		store, err := driver.New(d, Settings(ttl))
		if err != nil {
			return nil, err
		}
		t.Cleanup(store.Close)
		if g.broken != nil {
			return g.broken(store), nil
		}
		return store, nil
	})
}

func tuned(ttl time.Duration) func(*redis.UniversalOptions) *redis.UniversalOptions {
	return func(o *redis.UniversalOptions) *redis.UniversalOptions { return Tune(o, ttl) }
}

// opened is a Store, with its driver.
type opened struct {
	*driver.Store
	*locks
}

// connect makes a tuned client of one server, closed when the test ends.
func connect(t testing.TB, u string, ttl time.Duration) *redis.Client {
	t.Helper()
	client, err := Connect(u, ttl)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// newStore makes a Store on the shared server, in a key space of its own.
func newStore(t testing.TB, ttl time.Duration) *opened {
	t.Helper()
	return storeAt(t, redistest.URL(t), ttl, Options{Prefix: redistest.Prefix(t, redistest.URL(t))})
}

func storeAt(t testing.TB, u string, ttl time.Duration, o Options) *opened {
	t.Helper()
	return storeOf(t, connect(t, u, ttl), ttl, o)
}

func storeOf(t testing.TB, client redis.UniversalClient, ttl time.Duration, o Options) *opened {
	t.Helper()
	d, err := newLocks(client, ttl, o)
	if err != nil {
		t.Fatal(err)
	}
	store, err := driver.New(d, Settings(ttl))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return &opened{store, d}
}

// beside makes another Store with the keys of s, as another process has: s knows which keys it has granted itself.
func beside(t testing.TB, s *opened) *opened {
	t.Helper()
	return storeOf(t, s.client, s.ttl, s.Options)
}
