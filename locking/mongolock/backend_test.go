// SPDX-License-Identifier: MIT

package mongolock

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mongoURL is the URL of the server on which the tests run.
func mongoURL(t testing.TB) string { t.Helper(); return servertest.Env(t, "SHOP_MONGO_URL") }

// target is a MongoDB, and a kind of Store, to run on.
type target struct {
	url      string
	database string
	driver   func(*leases) driver.Driver       // makes the wrong variant of the driver; nil: none
	store    func(locking.Store) locking.Store // makes the wrong variant of a Store; nil: none
}

// opened is a Store, with its driver.
type opened struct {
	*driver.Store
	*leases
}

// open is a locktest.Open. Each Backend has a key space of its own.
func (g target) open(t testing.TB) locktest.Backend {
	t.Helper()
	g.database = newCollection(t, g.url).Database().Name()
	return locktest.Backend{
		Open: func(ttl time.Duration) (locking.Store, error) { return g.made(t, g.url, ttl) },
		Proxied: func(ttl time.Duration) locktest.Proxied {
			p := newProxy(t, primaryOf(t, g.url))
			store, err := g.made(t, through(p), ttl)
			if err != nil {
				t.Fatal(err)
			}
			return servertest.Disturbed(store, p)
		},
		Restartable: func() (locktest.Backend, func()) {
			s := startServer(t)
			return target{url: s.URL, driver: g.driver, store: g.store}.open(t), s.Restart
		},
		BadTTLs: []time.Duration{time.Second + time.Microsecond, 1500*time.Millisecond + 500*time.Microsecond},
	}
}

func (g target) made(t testing.TB, u string, ttl time.Duration) (locking.Store, error) {
	of := newLeases(connect(t, u).Database(g.database).Collection("locks"), ttl)
	var d driver.Driver = of
	if g.driver != nil {
		d = g.driver(of)
	}
	made, err := driver.New(d, settings(ttl))
	if err != nil {
		return nil, err
	}
	t.Cleanup(made.Close)
	if g.store != nil {
		return g.store(made), nil
	}
	return made, nil
}

// connect makes a client with default settings. It pings at once, because a client that
// was never used takes a heartbeat, ten seconds, to disconnect.
func connect(t testing.TB, u string) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(u))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(within(t, 5*time.Second)) })
	if err := client.Ping(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return client
}

// newCollection makes a collection in a database of its own, dropped when the test ends.
func newCollection(t testing.TB, u string) *mongo.Collection {
	t.Helper()
	database := connect(t, u).Database("t_" + rand.Text())
	if err := database.CreateCollection(t.Context(), "locks"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = database.Drop(within(t, 5*time.Second)) }) // fails if the test has stopped its server
	return database.Collection("locks")
}

// newStore makes a Store on the shared server, in a key space of its own.
func newStore(t testing.TB, ttl time.Duration) *opened {
	t.Helper()
	return storeOn(t, newCollection(t, mongoURL(t)), ttl)
}

func storeOn(t testing.TB, c *mongo.Collection, ttl time.Duration) *opened {
	t.Helper()
	store, err := New(c, ttl, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return &opened{store, newLeases(c, ttl)}
}

// beside makes another Store with the keys of s, as another process has: s knows which keys it has granted itself.
func beside(t testing.TB, s *opened) *opened { t.Helper(); return storeOn(t, s.grants, s.ttl) }

// disturbed makes a Store behind a proxy, with settings for its client, and a second Store
// in the same key space that connects directly.
func disturbed(t *testing.T, ttl time.Duration, settings ...string) (*opened, *servertest.Faults, *opened) {
	t.Helper()
	p := newProxy(t, primaryOf(t, mongoURL(t)))
	other := newStore(t, ttl)
	c := other.grants
	store := storeOn(t, connect(t, through(p)+strings.Join(settings, "")).Database(c.Database().Name()).Collection(c.Name()), ttl)
	if err := store.Release(t.Context(), locktest.Taken(t, store, "warm-up")); err != nil {
		t.Fatal(err)
	}
	return store, p, other
}

// within returns a ctx that may be used in a Cleanup too.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}
