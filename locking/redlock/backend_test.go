package redlock

import (
	"bytes"
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"shop/locking"
	"shop/locking/locktest"
)

// five is the number of servers that the Redis manual suggests.
const five = 5

// shared are the URLs of five servers for all tests and the example. They keep no data.
var shared []string

func TestMain(m *testing.M) {
	logging.Disable() // go-redis also returns its connection errors
	goleak.VerifyTestMain(locktest.WithServer(m, func(t testing.TB) {
		for _, s := range start(t, five) {
			shared = append(shared, "redis://"+s.Addr)
		}
		_ = os.Setenv("REDLOCK_URLS", strings.Join(shared, " "))
	}))
}

// start starts n servers. They keep no data, except with the settings locktest.Durable.
func start(t testing.TB, n int, settings ...string) (servers []*locktest.Server) {
	t.Helper()
	for range n {
		servers = append(servers, locktest.NewServer(t, locktest.Redis(settings...)))
	}
	for _, s := range servers {
		s.Spawn()
	}
	for _, s := range servers {
		s.Await()
	}
	return servers
}

// target is the shared servers, and a kind of Store to run on them.
type target struct {
	broken func(*Store) locking.Store // makes the wrong variant of a Store; nil: none
}

// open is a locktest.Open. Each Backend has a key space of its own.
func (g target) open(t testing.TB) locktest.Backend {
	t.Helper()
	prefix := newPrefix()
	store := func(urls []string, ttl time.Duration) (locking.Store, error) {
		s, err := New(urls, ttl, Options{Prefix: prefix})
		if err != nil {
			return nil, err
		}
		t.Cleanup(s.Close)
		if g.broken != nil {
			return g.broken(s), nil
		}
		return s, nil
	}
	return locktest.Backend{
		Open: func(ttl time.Duration) (locking.Store, error) { return store(shared, ttl) },
		Proxied: func(ttl time.Duration) locktest.Proxied {
			proxies, urls := disturb(t, shared, prefix)
			s, err := store(urls, ttl)
			if err != nil {
				t.Fatal(err)
			}
			return locktest.Disturbed(s, proxies...)
		},
		BadTTLs: []time.Duration{time.Second + time.Microsecond, 1500*time.Millisecond + 500*time.Microsecond},
	}
}

// disturb puts a proxy in front of each server, and returns the URLs through them. The proxies
// disturb the requests that contain names.
func disturb(t testing.TB, servers []string, names string) (proxies []*locktest.Faults, through []string) {
	t.Helper()
	for _, server := range servers {
		p := locktest.NewFaults(t, host(server), func(request []byte) bool { return bytes.Contains(request, []byte(names)) })
		proxies, through = append(proxies, p), append(through, "redis://"+p.Addr)
	}
	return proxies, through
}

func host(server string) string { return strings.TrimPrefix(server, "redis://") }

func newPrefix() string { return "test-" + rand.Text() }

// newStore makes a Store on servers, in a key space of its own.
func newStore(t testing.TB, servers []string, ttl time.Duration) *Store {
	t.Helper()
	return sibling(t, servers, ttl, newPrefix())
}

// sibling makes a Store in the key space with this prefix, as another process would have.
func sibling(t testing.TB, servers []string, ttl time.Duration, prefix string) *Store {
	t.Helper()
	s, err := New(servers, ttl, Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
