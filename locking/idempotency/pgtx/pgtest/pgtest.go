// SPDX-License-Identifier: MIT

// Package pgtest creates a schema for one test on a real PostgreSQL server.
package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking/idempotency/pgtx"
)

// Database is the schema of one test, and a pool of connections to it.
type Database struct {
	T    testing.TB
	URL  string // with search_path
	Pool *pgxpool.Pool
}

// New makes a schema that is dropped when the test ends, with the tables of lessons.
func New(t testing.TB, lessons ...string) *Database {
	t.Helper()
	databaseURL := Schema(t)
	d := &Database{T: t, URL: databaseURL, Pool: Pool(t, databaseURL)}
	if len(lessons) == 0 {
		return d
	}
	err := d.Pool.AcquireFunc(t.Context(), func(c *pgxpool.Conn) error {
		Migrate(t, c.Conn(), lessons...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Schema makes the schema at SHOP_POSTGRES_URL, and returns the URL with it as search_path.
// It fails the test if SHOP_POSTGRES_URL is not set: no test is skipped.
func Schema(t testing.TB) (databaseURL string) {
	t.Helper()
	base := os.Getenv("SHOP_POSTGRES_URL")
	if base == "" {
		t.Fatal("SHOP_POSTGRES_URL is not set: run the tests with `make test`, or set it to a PostgreSQL server")
	}
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	schema := "t_" + strings.ToLower(rand.Text())
	t.Cleanup(func() { // t.Context has ended by now
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		defer conn.Close(ctx)
		var pg *pgconn.PgError
		for {
			_, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+schema+" CASCADE")
			if errors.As(err, &pg) && pg.Code == "40P01" {
				continue // a deadlock with a session whose client was killed
			}
			if err != nil {
				t.Errorf("drop schema: %v", err)
			}
			return
		}
	})
	if _, err := conn.Exec(t.Context(), "CREATE SCHEMA "+schema); err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("search_path", schema)
	u.RawQuery = query.Encode()
	return u.String()
}

// Migrate makes the tables of idempotency keys and those of lessons ("inventory"), from the
// Up halves of the migration files. It does not use goose, whose parser allocates 4 MB a file,
// and so leaves no table of versions: tests of migrations call the lesson's Migrate.
func Migrate(t testing.TB, conn *pgx.Conn, lessons ...string) {
	t.Helper()
	for _, folder := range append([]string{"locking/idempotency/pgtx"}, lessons...) {
		files, err := filepath.Glob(filepath.Join(root(t), folder, "migrations", "*.sql"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no migrations in %s: %v", folder, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			up, _, _ := strings.Cut(string(text), "-- +goose Down")
			// The file is one message, so one transaction, and the tables are empty.
			up = strings.ReplaceAll(up, " CONCURRENTLY", "")
			const patient = "SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0;\n" // all schemas share the advisory lock of migrations
			if _, err := conn.PgConn().Exec(t.Context(), patient+up).ReadAll(); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
	}
}

// root is the folder above the test that has package pgtx, also in a copy.
func root(t testing.TB) string {
	t.Helper()
	folder, err := os.Getwd()
	for ; err == nil; folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "locking/idempotency/pgtx/migrations")); err == nil {
			return folder
		}
		if folder == filepath.Dir(folder) {
			err = errors.New("no locking/idempotency/pgtx/migrations above the test")
		}
	}
	t.Fatal(err)
	return ""
}

// Unhurried is a setting for Pool: the test decides how long a transaction is stopped, and not PostgreSQL.
const Unhurried = "idle_in_transaction_session_timeout=0"

// Pool opens a pool with the limits of pgtx.PoolConfig, closed when the test ends.
// Settings are run-time parameters of its sessions: "lock_timeout=100".
func Pool(t testing.TB, databaseURL string, settings ...string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgtx.PoolConfig(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 32
	// By default a pool pings a connection that was idle for a second: an extra round trip.
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		cfg.ConnConfig.RuntimeParams[name] = value
	}
	return Open(t, cfg)
}

// Open opens a pool as configured, closed when the test ends.
func Open(t testing.TB, cfg *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Exec runs a statement.
func (d *Database) Exec(sql string, args ...any) {
	d.T.Helper()
	if _, err := d.Pool.Exec(context.Background(), sql, args...); err != nil {
		d.T.Fatal(err)
	}
}

// Number runs a query that returns one number.
func (d *Database) Number(sql string, args ...any) (n int64) {
	d.T.Helper()
	if err := d.Pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		d.T.Fatal(err)
	}
	return n
}

// Hold runs a statement in a transaction that stays open until release is called.
func (d *Database) Hold(sql string, args ...any) (release func()) {
	d.T.Helper()
	tx, err := Pool(d.T, d.URL, "idle_in_transaction_session_timeout=0").Begin(d.T.Context())
	if err != nil {
		d.T.Fatal(err)
	}
	release = sync.OnceFunc(func() { _ = tx.Rollback(context.Background()) })
	d.T.Cleanup(release) // runs before the pool's cleanup, which waits for the transaction
	if _, err := tx.Exec(d.T.Context(), sql, args...); err != nil {
		d.T.Fatal(err)
	}
	return release
}

// Waiting counts the sessions at tables of this schema that wait for a lock. Waits for a table
// of the catalog do not count: autovacuum locks those for a moment when it truncates them.
func (d *Database) Waiting() int64 {
	d.T.Helper()
	return d.Number(`
		WITH ours AS (SELECT oid FROM pg_class WHERE relnamespace = current_schema()::regnamespace)
		SELECT count(DISTINCT pid)
		FROM pg_locks
		WHERE NOT granted
		AND (relation IS NULL OR relation IN (SELECT oid FROM ours))
		AND pid IN (SELECT pid FROM pg_locks WHERE relation IN (SELECT oid FROM ours))`)
}
