package redislock

import (
	"context"
	"crypto/rand"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
)

// redisURL is the URL of the server on which the tests run.
func redisURL(t testing.TB) string { t.Helper(); return locktest.Env(t, "SHOP_REDIS_URL") }

// target is a kind of Redis, and of Store, to run on.
type target struct {
	url       string   // of the server: a node that has all the keys, the master
	cluster   bool     // the server is a node of a Cluster
	sentinels []string // of the server
	proxy     *locktest.Faults
	options   Options
	kind      func(redis.UniversalClient, time.Duration, Options) (closing, error) // nil: a Store
	broken    func(*Store) locking.Store                                           // makes the wrong variant of a Store; nil: none

	// start starts another such Redis, and returns the server that has the keys; nil: a single server.
	start func(testing.TB) (target, *locktest.Server)
}

// open is a locktest.Open. Each Backend has a key space of its own.
func (g target) open(t testing.TB) locktest.Backend {
	t.Helper()
	g.options.Prefix = newPrefix(t, g.url)
	return locktest.Backend{
		Open: func(ttl time.Duration) (locking.Store, error) {
			return g.store(t, g.client(t, ttl), ttl)
		},
		Proxied: func(ttl time.Duration) locktest.Proxied {
			p := newProxy(t, hostOf(t, g.url))
			through := g
			through.proxy = p
			store, err := g.store(t, through.client(t, ttl), ttl)
			if err != nil {
				t.Fatal(err)
			}
			return locktest.Disturbed(store, p)
		},
		Restartable: func() (locktest.Backend, func()) {
			start := g.start
			if start == nil {
				start = startSingle
			}
			own, s := start(t)
			own.options, own.kind, own.broken = g.options, g.kind, g.broken
			return own.open(t), s.Restart
		},
		Waiting: g.waiting(t),
		BadTTLs: []time.Duration{time.Second + time.Microsecond, 1500*time.Millisecond + 500*time.Microsecond},
	}
}

// client makes a tuned client. With a proxy, it connects to it instead of to the server.
func (g target) client(t testing.TB, ttl time.Duration) redis.UniversalClient {
	t.Helper()
	server := hostOf(t, g.url)
	o := Tune(&redis.UniversalOptions{Addrs: []string{server}, IsClusterMode: g.cluster}, ttl)
	if g.sentinels != nil {
		o.MasterName, o.Addrs = "mymaster", g.sentinels
	}
	if g.proxy != nil {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == server { // nodes and sentinels report the server's own address
				addr = g.proxy.Addr
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	}
	client := redis.NewUniversalClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func (g target) store(t testing.TB, client redis.UniversalClient, ttl time.Duration) (locking.Store, error) {
	t.Helper()
	var store closing
	var err error
	if g.kind == nil {
		store, err = New(client, ttl, g.options)
	} else {
		store, err = g.kind(client, ttl, g.options)
	}
	if err != nil {
		return nil, err
	}
	t.Cleanup(store.Close)
	if g.broken != nil {
		return g.broken(store.(*Store)), nil
	}
	return store, nil
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
func newStore(t testing.TB, ttl time.Duration) *Store {
	t.Helper()
	return storeAt(t, redisURL(t), ttl, Options{Prefix: newPrefix(t, redisURL(t))})
}

func storeAt(t testing.TB, u string, ttl time.Duration, o Options) *Store {
	t.Helper()
	store, err := New(connect(t, u, ttl), ttl, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// newPrefix returns a prefix for this test alone, and removes the keys under it when
// the test ends, because fence counters have no TTL.
func newPrefix(t testing.TB, u string) string {
	t.Helper()
	prefix := "test-" + rand.Text()
	t.Cleanup(func() {
		ctx, client := context.Background(), redis.NewClient(&redis.Options{Addr: hostOf(t, u), MaxRetries: -1, DialerRetries: 1})
		defer client.Close()
		names := client.Scan(ctx, 0, prefix+"*", 10_000).Iterator()
		for names.Next(ctx) {
			client.Del(ctx, names.Val())
		}
	})
	return prefix
}
