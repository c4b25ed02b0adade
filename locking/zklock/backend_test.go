// SPDX-License-Identifier: MIT

package zklock

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// minTTL is the shortest session timeout of the servers: two ticks of a second.
const minTTL = 2 * time.Second

// target is a ZooKeeper, and a kind of Store, to run on.
type target struct {
	servers []string
	prefix  string
	broken  func(*opened) locking.Store // makes the wrong variant of a Store; nil: none
}

// opened is a Store, and its driver.
type opened struct {
	*driver.Store
	*locks
}

// shared is the ZooKeeper of all tests that break none, with a key space for this test.
func shared(t testing.TB) target {
	t.Helper()
	return at(strings.Split(servertest.Env(t, "SHOP_ZOOKEEPER_SERVERS"), ",")...)
}

func at(servers ...string) target {
	return target{servers: servers, prefix: "/test-" + rand.Text()}
}

// open is a locktest.Open. Each Backend has a key space of its own.
func (g target) open(t testing.TB) locktest.Backend {
	t.Helper()
	g.prefix = "/test-" + rand.Text()
	look := sync.OnceValue(func() *opened { return g.must(t, time.Minute) })
	return locktest.Backend{
		Open: func(ttl time.Duration) (locking.Store, error) { return g.locking(t, ttl) },
		Proxied: func(ttl time.Duration) locktest.Proxied {
			g, p := g, newProxy(t, g.servers[0])
			g.servers = []string{p.Addr}
			store, err := g.locking(t, ttl)
			if err != nil {
				t.Fatal(err)
			}
			return locktest.Proxied{Store: store, Lose: p.lose, Lost: p.Lost, Delay: p.Delay}
		},
		Restartable: func() (locktest.Backend, func()) {
			own := servertest.StartZooKeeper(t, 1)[0]
			g := g
			g.servers = []string{own.Addr}
			return g.open(t), own.Restart
		},
		Waiting: func(key string) int { return max(0, len(queueIn(t, look(), key))-1) },
		BadTTLs: []time.Duration{time.Second, 10 * time.Minute, 2*time.Second + time.Microsecond},
	}
}

func (g target) locking(t testing.TB, ttl time.Duration) (locking.Store, error) {
	store, err := g.store(t, ttl)
	if err != nil || g.broken == nil {
		return store, err
	}
	broken := g.broken(store)
	if s, own := broken.(*driver.Store); own {
		t.Cleanup(s.Close)
	}
	return broken, nil
}

func (g target) store(t testing.TB, ttl time.Duration) (*opened, error) {
	return g.with(t, ttl, Options{})
}

func (g target) with(t testing.TB, ttl time.Duration, o Options) (*opened, error) {
	o.Prefix = g.prefix
	d, err := open(context.Background(), g.servers, ttl, o)
	if err != nil {
		return nil, err
	}
	store, err := driver.New(d, settings(ttl))
	if err != nil {
		return nil, err
	}
	t.Cleanup(store.Close)
	return &opened{store, d}, nil
}

// must is store, but fails the test on an error.
func (g target) must(t testing.TB, ttl time.Duration) *opened {
	t.Helper()
	store, err := g.store(t, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// queueIn lists the names in the queue of a key, in the order of their sequence numbers.
func queueIn(t testing.TB, s *opened, key string) []string {
	t.Helper()
	names, _, err := s.conn.Children(s.queueOf(key))
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	slices.SortFunc(names, func(a, b string) int { return int(sequence(a) - sequence(b)) })
	return names
}
