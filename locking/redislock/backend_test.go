package redislock

import (
	"bytes"
	"context"
	"crypto/rand"
	"net"
	"net/url"
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
	url     string
	cluster bool // the server is a Cluster
	options Options
	broken  func(*Store) locking.Store // makes the wrong variant of a Store; nil: none
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
			store, err := g.store(t, g.via(p).client(t, ttl), ttl)
			if err != nil {
				t.Fatal(err)
			}
			return locktest.Proxied{Store: store, Lose: p.Lose, Lost: p.Lost, Delay: p.Delay}
		},
		Restartable: func() (locktest.Backend, func()) {
			s := locktest.Start(t, locktest.Redis(locktest.Durable...))
			if g.cluster {
				s.Kill()
				s = startCluster(t)
			}
			g.url = "redis://" + s.Addr
			return g.open(t), s.Restart
		},
		BadTTLs: []time.Duration{time.Second + time.Microsecond, 1500*time.Millisecond + 500*time.Microsecond},
	}
}

// via returns the target with p in between.
func (g target) via(p *locktest.Faults) target {
	g.url = "redis://" + p.Addr
	return g
}

func (g target) client(t testing.TB, ttl time.Duration) redis.UniversalClient {
	t.Helper()
	if !g.cluster {
		return connect(t, g.url, ttl)
	}
	o := Tune(&redis.UniversalOptions{Addrs: []string{hostOf(t, g.url)}}, ttl).Cluster()
	o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) { // the node reports its own address, not the proxy's
		return new(net.Dialer).DialContext(ctx, network, o.Addrs[0])
	}
	client := redis.NewClusterClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func (g target) store(t testing.TB, client redis.UniversalClient, ttl time.Duration) (locking.Store, error) {
	store, err := New(client, ttl, g.options)
	if err != nil {
		return nil, err
	}
	t.Cleanup(store.Close)
	if g.broken != nil {
		return g.broken(store), nil
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

func hostOf(t testing.TB, u string) string {
	t.Helper()
	parsed, err := url.Parse(u)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Host
}

// newProxy makes a proxy that disturbs lock requests, which are all scripts.
func newProxy(t testing.TB, addr string) *locktest.Faults {
	t.Helper()
	return locktest.NewFaults(t, addr, func(request []byte) bool { return bytes.Contains(request, []byte("eval")) })
}
