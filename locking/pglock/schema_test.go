package pglock_test

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking/pglock"
)

// newPool makes a pool on a new schema of the real server, and migrates the schema.
func newPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	url := os.Getenv("SHOP_POSTGRES_URL")
	if url == "" {
		t.Fatal("SHOP_POSTGRES_URL is not set: run the tests with `make test`, or `go run ./compose/local exec -- go test ./...`")
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	schema := "t_" + strings.ToLower(rand.Text())
	cfg.ConnConfig.RuntimeParams["search_path"] = schema
	cfg.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, "CREATE SCHEMA "+schema)
	t.Cleanup(func() { // t.Context has ended by now
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := pool.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE"); err != nil {
			t.Errorf("drop schema: %v", err)
		}
		pool.Close()
	})
	migrate(t, pool)
	return pool
}

func migrate(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := pglock.Migrate(t.Context(), conn.Conn()); err != nil {
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

// awaitBlocked waits until the transaction's backend waits for a lock.
func awaitBlocked(t testing.TB, pool *pgxpool.Pool, tx pgx.Tx) {
	t.Helper()
	pid := tx.Conn().PgConn().PID()
	for deadline := time.Now().Add(10 * time.Second); ; {
		if number(t, pool, `SELECT count(*) FROM pg_locks WHERE pid = $1 AND NOT granted`, pid) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the transaction does not wait for a lock")
		}
	}
}

func TestMigrate_MayRunConcurrentlyAndRepeatedly(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	exec(t, pool, `DROP TABLE guards`)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { migrate(t, pool) })
	}
	wg.Wait()
	if n := number(t, pool, `SELECT count(*) FROM guards`); n != 0 {
		t.Errorf("%d guards in a new table", n)
	}
}
