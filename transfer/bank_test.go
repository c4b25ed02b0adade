package transfer_test

import (
	"context"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking/etcdlock"
	"shop/locking/idempotency/pgtx"
	"shop/transfer"
)

// bank is a schema of its own on the real server, and what the tests need of it.
type bank struct {
	*transfer.Service
	t      testing.TB
	url    string // with search_path
	pool   *pgxpool.Pool
	cfg    transfer.Config
	locks  *locks // in etcd, where the strategy needs them
	events *events
	total  int64 // of all openings
}

// events counts what the Service reports.
type events struct {
	mu sync.Mutex
	n  map[transfer.EventKind]int
}

func (e *events) count(kind transfer.EventKind, _ string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n[kind]++
}

func (e *events) of(kind transfer.EventKind) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.n[kind]
}

// env reads an address. A missing server fails the test: nothing is skipped.
func env(t testing.TB, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: run the tests with `make test`, or `go run ./compose/local exec -- go test ./...`", name)
	}
	return v
}

// open makes a schema, migrates it, and opens a Service on it with cfg, and with
// the lock stores that its strategy needs.
func open(t testing.TB, cfg transfer.Config) *bank {
	t.Helper()
	return openWith(t, cfg, nil)
}

// openWith is open with locks at an etcd of one's own.
func openWith(t testing.TB, cfg transfer.Config, at *locks) *bank {
	t.Helper()
	b := &bank{t: t, url: newSchema(t), locks: at}
	if err := transfer.Migrate(t.Context(), b.url); err != nil {
		t.Fatal(err)
	}
	b.pool = newPool(t, b.url)
	b.cfg = cfg
	b.cfg.Pool = b.pool
	if b.cfg.Strategy == "" {
		b.cfg.Strategy = "row"
	}
	b.cfg = b.withStores(b.cfg)
	b.Service, b.events = b.another(b.cfg)
	return b
}

// replica is cfg for another process: with a lock store of its own.
func (b *bank) replica() transfer.Config {
	b.t.Helper()
	cfg := b.cfg
	if _, ours := cfg.Locks.(*etcdlock.Store); ours {
		cfg.Locks = b.locks.store(b.t)
	}
	return cfg
}

// another opens a second Service.
func (b *bank) another(cfg transfer.Config) (*transfer.Service, *events) {
	b.t.Helper()
	e := &events{n: map[transfer.EventKind]int{}}
	if cfg.Count == nil {
		cfg.Count = e.count
	}
	svc, err := transfer.New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return svc, e
}

func newSchema(t testing.TB) string {
	t.Helper()
	base := env(t, "SHOP_POSTGRES_URL")
	conn, err := pgx.Connect(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	schema := "t_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if _, err := conn.Exec(t.Context(), "CREATE SCHEMA "+schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // t.Context has ended by now
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE"); err != nil {
			t.Errorf("drop schema: %v", err)
		}
	})
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String()
}

func newPool(t testing.TB, url string, settings ...string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgtx.PoolConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 32
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		cfg.ConnConfig.RuntimeParams[name] = value
	}
	return poolOf(t, cfg)
}

func poolOf(t testing.TB, cfg *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
