package inventory_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/inventory"
	"shop/locking/idempotency/pgtx"
)

// shop is a schema of its own on the real server, and what the tests need of it.
type shop struct {
	*inventory.Service
	t    testing.TB
	url  string // with search_path
	pool *pgxpool.Pool
	cfg  inventory.Config

	armedCfg inventory.Config // with the pool that goes through a proxy
	events   *events
}

// events counts what the Service reports.
type events struct {
	mu sync.Mutex
	n  map[inventory.EventKind]int
}

func (e *events) count(kind inventory.EventKind, _ string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n[kind]++
}

func (e *events) of(kind inventory.EventKind) int {
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

// open makes a schema, migrates it, and opens a Service on it with cfg.
func open(t testing.TB, cfg inventory.Config) *shop {
	t.Helper()
	s := &shop{t: t, url: newSchema(t)}
	if err := inventory.Migrate(t.Context(), s.url); err != nil {
		t.Fatal(err)
	}
	s.pool = newPool(t, s.url)
	s.cfg = cfg
	s.cfg.Pool = s.pool
	if s.cfg.Strategy == "" {
		s.cfg.Strategy = "row"
	}
	s.Service, s.events = s.another(s.cfg)
	return s
}

// another opens a second Service, as another replica would.
func (s *shop) another(cfg inventory.Config) (*inventory.Service, *events) {
	s.t.Helper()
	e := &events{n: map[inventory.EventKind]int{}}
	if cfg.Count == nil {
		cfg.Count = e.count
	}
	svc, err := inventory.New(cfg)
	if err != nil {
		s.t.Fatal(err)
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
	// A pool tries a connection that was idle for a second: one round trip more, now and then.
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		cfg.ConnConfig.RuntimeParams[name] = value
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// stock puts a product there with n on stock, at 100 cents.
func (s *shop) stock(sku string, n int64) {
	s.t.Helper()
	created, err := s.AddProduct(s.t.Context(), inventory.Product{SKU: sku, Name: sku, Price: 100, Currency: "EUR", Stock: n})
	if err != nil || !created {
		s.t.Fatalf("AddProduct(%q): created %v, %v", sku, created, err)
	}
}

// restock adds to a product's stock.
func (s *shop) restock(sku string, n int64) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), `
		WITH stocked AS (
			UPDATE products
			SET stock = stock + $2, version = version + 1
			WHERE sku = $1
			RETURNING sku)
		INSERT INTO stock_movements (sku, kind, quantity)
		SELECT sku, 'restock', $2 FROM stocked`, sku, n)
	if err != nil {
		s.t.Fatal(err)
	}
}

// ask is a fresh request of a fresh client.
func ask() inventory.Request { return askBy(uuid.New(), uuid.NewString()) }

func askBy(client uuid.UUID, key string) inventory.Request {
	return inventory.Request{Client: client, Key: key, Fingerprint: sha256.Sum256([]byte("body"))}
}

func one(sku string) []inventory.Line { return []inventory.Line{{SKU: sku, Quantity: 1}} }

// left is the stock of a product.
func (s *shop) left(sku string) int64 {
	s.t.Helper()
	p, err := s.Product(context.Background(), sku)
	if err != nil {
		s.t.Fatal(err)
	}
	return p.Stock
}

// number asks the database for one number.
func (s *shop) number(sql string, args ...any) (n int64) {
	s.t.Helper()
	if err := s.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// waiting counts the backends that wait for a lock on this shop's tables.
func (s *shop) waiting() int64 {
	return s.number(`
		SELECT count(DISTINCT pid)
		FROM pg_locks l
		WHERE l.pid IN (SELECT pid FROM pg_locks WHERE relation = 'products'::regclass)
		AND NOT l.granted`)
}

// isRefused tells a stored refusal from an order, in the default encoding.
func isRefused(r inventory.Reply) bool { return bytes.HasPrefix(r.Body, []byte(`{"refused"`)) }
