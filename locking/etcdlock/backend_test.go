// SPDX-License-Identifier: MIT

package etcdlock

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// minTTL is the minimum to which etcd with its default election timeout raises a TTL.
const minTTL = 2 * time.Second

// endpoints are those of the etcd on which the tests run.
func endpoints(t testing.TB) []string {
	t.Helper()
	return strings.Split(servertest.Env(t, "SHOP_ETCD_ENDPOINTS"), ",")
}

// target is an etcd, and a kind of Store, to run on.
type target struct {
	endpoints []string
	prefix    string
	broken    func(*Store) locking.Store // makes the wrong variant of a Store; nil: none
}

// open is a locktest.Open. Each Backend has a key space of its own.
func (g target) open(t testing.TB) locktest.Backend {
	t.Helper()
	client := g.client(t)
	g.prefix = newPrefix(t, client)
	return locktest.Backend{
		Open: func(ttl time.Duration) (locking.Store, error) { return g.locking(t, ttl) },
		Proxied: func(ttl time.Duration) locktest.Proxied {
			w := newProxy(t, g.endpoints[0])
			g := g
			g.endpoints = []string{w.addr}
			store, err := g.locking(t, ttl)
			if err != nil {
				t.Fatal(err)
			}
			return locktest.Proxied{Store: store, Lose: w.loseNext, Lost: w.lostSoFar, Delay: w.delayEach}
		},
		Restartable: func() (locktest.Backend, func()) {
			m := servertest.StartEtcd(t, 1)[0]
			g := g
			g.endpoints = []string{m.Addr}
			return g.open(t), m.Restart
		},
		Waiting: func(key string) int { return waiting(t, client, g.prefix, key) },
		BadTTLs: []time.Duration{time.Second, 1500 * time.Millisecond, 2500 * time.Millisecond},
	}
}

func (g target) client(t testing.TB) *clientv3.Client {
	t.Helper()
	client := dial(t, g.endpoints...)
	client.Watcher = &countingWatcher{Watcher: client.Watcher}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func (g target) locking(t testing.TB, ttl time.Duration) (locking.Store, error) {
	store, err := g.store(t, ttl)
	if err != nil || g.broken == nil {
		return store, err
	}
	return g.broken(store), nil
}

// store makes a Store with a client of its own, as another process would have.
func (g target) store(t testing.TB, ttl time.Duration) (*Store, error) {
	client := g.client(t)
	var store *Store
	err := locktest.Insist(t.Context(), func(bool) (err error) {
		store, err = New(t.Context(), client, ttl, Options{Prefix: g.prefix})
		return err
	})
	if err == nil {
		t.Cleanup(store.Close)
	}
	return store, err
}

// must is store, but fails the test on an error.
func (g target) must(t testing.TB, ttl time.Duration) *Store {
	t.Helper()
	store, err := g.store(t, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// shared is the etcd that all tests share, with a key space for this test.
func shared(t testing.TB) target {
	t.Helper()
	return at(t, endpoints(t)...)
}

func at(t testing.TB, endpoints ...string) target {
	g := target{endpoints: endpoints}
	g.prefix = newPrefix(t, g.client(t))
	return g
}

// newPrefix returns a prefix for this test alone, and removes the keys under it when
// the test ends.
func newPrefix(t testing.TB, client *clientv3.Client) string {
	t.Helper()
	prefix := "test-" + rand.Text()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = client.Delete(ctx, prefix, clientv3.WithPrefix()) // fails if the test has stopped its own server
	})
	return prefix
}

// dial makes a client without a log.
func dial(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(quiet(endpoints...))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func quiet(endpoints ...string) clientv3.Config {
	config := Config(endpoints...)
	config.Logger = zap.NewNop()
	return config
}
