// SPDX-License-Identifier: MIT

package pglock

import (
	"bytes"
	"context"
	"crypto/rand"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// target is a PostgreSQL, and a kind of Store, to run on.
type target struct {
	url    string
	sql    string                            // changes the table of the migrations
	edits  []string                          // change the migration of the locks, and the statements of one free key
	broken func(locking.Store) locking.Store // makes the wrong variant of a Store; nil: none
}

// open is a locktest.Open. Each Backend has a schema of its own.
func (g target) open(t testing.TB) locktest.Backend {
	t.Helper()
	schema := newSchema(t, g.url)
	migration, take, free := edited(t, g.edits...)
	if g.edits == nil {
		migration = g.sql
	}
	if migration != "" {
		exec(t, connect(t, schema, 1), migration)
	}
	store := func(url string, ttl time.Duration) (locking.Store, error) {
		p := newTable(connect(t, url, 3), ttl)
		p.takeOne, p.freeOne = take, free
		store, err := driver.New(p, settings(ttl))
		if err != nil {
			return nil, err
		}
		t.Cleanup(store.Close)
		if g.broken != nil {
			return g.broken(store), nil
		}
		return store, nil
	}
	return locktest.Backend{
		Open:    func(ttl time.Duration) (locking.Store, error) { return store(schema, ttl) },
		Proxied: func(ttl time.Duration) locktest.Proxied { return disturbed(t, schema, ttl, store) },
		Restartable: func() (locktest.Backend, func()) {
			server, url := startServer(t)
			g.url = url
			return g.open(t), server.Restart
		},
		BadTTLs: []time.Duration{time.Second + time.Microsecond, 1500*time.Millisecond + 500*time.Microsecond},
	}
}

// sessions is a PostgreSQL, and a kind of Store of sessions, to run on.
type sessions struct {
	url    string
	broken func(locking.Store) locking.Store
	keep   func(context.Context, *session) error // replaces that of a session
}

func (g sessions) open(t testing.TB) locktest.Backend {
	t.Helper()
	space, monitor := rand.Text(), connect(t, g.url, 1)
	store := func(url string, _ time.Duration) (locking.Store, error) {
		var d driver.Driver = newSessionsOf(connect(t, url, 120)) // the suite holds a hundred keys at once
		if g.keep != nil {
			d = keeping{d.(*driver.Sessions[*session]), g.keep}
		}
		store := made(driver.New(d, sessionSettings(Options{Prefix: space})))
		t.Cleanup(store.Close)
		if g.broken != nil {
			return g.broken(store), nil
		}
		return store, nil
	}
	return locktest.Backend{
		Open:    func(ttl time.Duration) (locking.Store, error) { return store(g.url, ttl) },
		Proxied: func(ttl time.Duration) locktest.Proxied { return disturbed(t, g.url, ttl, store) },
		Waiting: func(key string) int { return inServer(t, monitor, space+key) },
	}
}

// inServer returns how many sessions wait for the advisory lock of a name.
func inServer(t testing.TB, pool *pgxpool.Pool, name string) int {
	t.Helper()
	return int(number(t, pool, `
		SELECT count(*) FROM pg_locks
		WHERE NOT granted AND locktype = 'advisory' AND (classid::bigint << 32 | objid::bigint) = $1`, Hash(name)))
}

// disturbed makes a store behind a proxy that disturbs lock requests.
func disturbed(t testing.TB, server string, ttl time.Duration, make func(string, time.Duration) (locking.Store, error)) locktest.Proxied {
	t.Helper()
	p, through := newProxy(t, server)
	store, err := make(through, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return servertest.Disturbed(store, p)
}

// newProxy makes a proxy that disturbs the requests of both stores, and returns the URL through it. It knows them by
// their SQL, so none is prepared.
func newProxy(t testing.TB, server string) (p *servertest.Faults, through string) {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	p = servertest.NewFaults(t, u.Host, func(request []byte) bool {
		return bytes.Contains(request, []byte("locks_")) || bytes.Contains(request, []byte("UPDATE locks")) || bytes.Contains(request, []byte("advisory"))
	})
	u.Host = p.Addr
	return p, u.String() + "&default_query_exec_mode=exec"
}

// startServer starts a PostgreSQL for one test.
func startServer(t testing.TB) (*servertest.Server, string) {
	t.Helper()
	return servertest.StartPostgres(t)
}

// opened is a Store, with its driver.
type opened struct {
	*driver.Store
	*table
}

// newStore makes a Store in a new schema of the shared server, and a pool on that schema.
func newStore(t testing.TB, ttl time.Duration) (*opened, *pgxpool.Pool) {
	t.Helper()
	pool := newPool(t)
	return storeOn(t, pool, ttl), pool
}

// storeOn makes a Store like that of another process: a Store knows which keys it has granted itself.
func storeOn(t testing.TB, pool *pgxpool.Pool, ttl time.Duration) *opened {
	t.Helper()
	store := made(New(pool, ttl, Options{}))
	t.Cleanup(store.Close)
	return &opened{store, newTable(pool, ttl)}
}
