// SPDX-License-Identifier: MIT

package mysqllock

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// env is the setting with the DSN, without a database, of the server that the tests of this package
// share. If it is not set, they start a MariaDB. Its user may do everything.
const env = "SHOP_MYSQL_DSN"

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(servertest.WithServer(m, func(t testing.TB) {
		if os.Getenv(env) == "" {
			_, dsn := servertest.StartMariaDB(t, ping)
			_ = os.Setenv(env, dsn)
		}
	}))
}

func ping(ctx context.Context, dsn string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.PingContext(ctx)
}

func parse(t testing.TB, dsn string) *mysql.Config {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logger = &mysql.NopLogger{} // the tests break connections
	return cfg
}

// target is a server, and a kind of Store, to run on.
type target struct {
	dsn    string
	edits  []string                          // change the migration of the locks, and the statements of one free key
	broken func(locking.Store) locking.Store // makes the wrong variant of a Store; nil: none
}

// open is a locktest.Open. Each Backend has a database of its own.
func (g target) open(t testing.TB) locktest.Backend {
	t.Helper()
	migration, take, free := edited(t, g.edits...)
	database := newDatabase(t, g.dsn, migration)
	store := func(cfg *mysql.Config, ttl time.Duration) (locking.Store, error) {
		m := newTable(connect(t, cfg, 3), ttl)
		m.takeOne, m.freeOne = take, free
		store, err := driver.New(m, settings(ttl))
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
		Open:    func(ttl time.Duration) (locking.Store, error) { return store(database, ttl) },
		Proxied: func(ttl time.Duration) locktest.Proxied { return disturbed(t, database, ttl, store) },
		Restartable: func() (locktest.Backend, func()) {
			var server *servertest.Server
			server, g.dsn = servertest.StartMariaDB(t, ping)
			return g.open(t), server.Restart
		},
		BadTTLs: []time.Duration{time.Second + time.Microsecond, 1500*time.Millisecond + 500*time.Microsecond},
	}
}

// sessions is a kind of Store of sessions to run on.
type sessions struct {
	broken func(locking.Store) locking.Store
	keep   func(context.Context, *session) error // replaces that of a session
}

func (g sessions) open(t testing.TB) locktest.Backend {
	t.Helper()
	server, space := parse(t, servertest.Env(t, env)), rand.Text()
	monitor := connect(t, server, 1)
	store := func(cfg *mysql.Config, _ time.Duration) (locking.Store, error) {
		var d driver.Driver = newSessionsOf(connect(t, cfg, 120)) // the suite holds a hundred keys at once
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
		Open:    func(ttl time.Duration) (locking.Store, error) { return store(server, ttl) },
		Proxied: func(ttl time.Duration) locktest.Proxied { return disturbed(t, server, ttl, store) },
		Waiting: func(key string) int { return inServer(t, monitor, space+key) },
	}
}

// inServer returns how many sessions wait for the lock of a name.
func inServer(t testing.TB, db *sql.DB, name string) int {
	t.Helper()
	return int(number(t, db, `
		SELECT COUNT(*) FROM information_schema.PROCESSLIST
		WHERE STATE = 'User lock' AND INFO LIKE ?`, "%"+Name(name)+"%"))
}

// disturbed makes a store behind a proxy that disturbs lock requests.
func disturbed(t testing.TB, server *mysql.Config, ttl time.Duration, make func(*mysql.Config, time.Duration) (locking.Store, error)) locktest.Proxied {
	t.Helper()
	p := servertest.NewFaults(t, server.Addr, func(request []byte) bool {
		return bytes.Contains(request, []byte("CALL locks_")) || bytes.Contains(request, []byte("UPDATE locks")) || bytes.Contains(request, []byte("_LOCK("))
	})
	through := server.Clone()
	through.Addr = p.Addr
	store, err := make(through, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return servertest.Disturbed(store, p)
}

// opened is a Store, with its driver.
type opened struct {
	*driver.Store
	*table
}

// newStore makes a Store in a new database of the shared server, and a pool on that database.
func newStore(t testing.TB, ttl time.Duration) (*opened, *sql.DB) {
	t.Helper()
	db := newDB(t)
	return storeOn(t, db, ttl), db
}

func storeOn(t testing.TB, db *sql.DB, ttl time.Duration) *opened {
	t.Helper()
	store := made(New(db, ttl, Options{}))
	t.Cleanup(store.Close)
	return &opened{store, newTable(db, ttl)}
}
