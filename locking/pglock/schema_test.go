// SPDX-License-Identifier: MIT

package pglock

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking/locktest"
	"shop/locking/servertest"
)

// newPool makes a pool on a new schema of the shared server, and migrates the schema.
func newPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return connect(t, newSchema(t, servertest.Env(t, "SHOP_POSTGRES_URL")), 16)
}

// newSchema makes a schema, migrates it, and returns the URL with it as search_path.
func newSchema(t testing.TB, server string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	schema := "t_" + strings.ToLower(rand.Text())
	query := u.Query()
	query.Set("search_path", schema)
	u.RawQuery = query.Encode()
	on := func(do func(context.Context, *pgx.Conn) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // t.Context ends before Cleanup
		defer cancel()
		conn, err := pgx.Connect(ctx, u.String())
		if err == nil {
			err = do(ctx, conn)
			_ = conn.Close(ctx)
		}
		if err != nil {
			t.Errorf("schema: %v", err)
		}
	}
	on(func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
			return err
		}
		return Migrate(ctx, conn)
	})
	t.Cleanup(func() {
		on(func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE")
			for code(err) == "40P01" { // a deadlock with a request whose client has left
				_, err = conn.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE")
			}
			return err
		})
	})
	return u.String()
}

// connect makes a pool that is closed when the test ends.
func connect(t testing.TB, url string, conns int32) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// code returns the server's code of an error, or "".
func code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

func migrate(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := Migrate(t.Context(), conn.Conn()); err != nil {
		t.Error(err)
	}
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func number(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (n int64) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// begin opens a transaction that is rolled back at the end of the test, if not before.
func begin(t testing.TB, pool *pgxpool.Pool, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// blocked reports whether the transaction's backend waits for a lock.
func blocked(t testing.TB, pool *pgxpool.Pool, tx pgx.Tx) bool {
	t.Helper()
	return number(t, pool, `SELECT count(*) FROM pg_locks WHERE pid = $1 AND NOT granted`, tx.Conn().PgConn().PID()) > 0
}

func awaitBlocked(t testing.TB, pool *pgxpool.Pool, tx pgx.Tx) {
	t.Helper()
	locktest.Eventually(t, "the transaction waits for a lock", func() bool { return blocked(t, pool, tx) })
}

func TestMigrate_MayRunConcurrentlyAndRepeatedly(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	exec(t, pool, `DROP TABLE guards, locks, lock_rows; DROP SEQUENCE locks_fence; DROP FUNCTION locks_acquire, xact_lock_within`)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { migrate(t, pool) })
	}
	wg.Wait()
	if n := number(t, pool, `SELECT count(*) FROM guards, locks, lock_rows`); n != 0 {
		t.Errorf("%d rows in new tables", n)
	}
}
