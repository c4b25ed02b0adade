package transfer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
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
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
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
	cfg, err := transfer.PoolConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 32
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

// account opens one in EUR.
func (b *bank) account(owner uuid.UUID, opening int64) uuid.UUID {
	b.t.Helper()
	a := transfer.Account{ID: uuid.New(), Owner: owner, Currency: "EUR", Opening: opening}
	opened, err := b.OpenAccount(b.t.Context(), a)
	if err != nil || !opened {
		b.t.Fatalf("OpenAccount: opened %v, %v", opened, err)
	}
	b.total += opening
	return a.ID
}

// pair is two clients with an account each.
type pair struct {
	alice, bob uuid.UUID // clients
	a, b       uuid.UUID // their accounts
}

func (b *bank) pair(openings ...int64) (p pair) {
	p.alice, p.bob = uuid.New(), uuid.New()
	p.a, p.b = b.account(p.alice, openings[0]), b.account(p.bob, openings[1])
	return p
}

func (p pair) move(amount int64) transfer.Move { return euros(p.a, p.b, amount) }
func (p pair) back(amount int64) transfer.Move { return euros(p.b, p.a, amount) }

func euros(from, to uuid.UUID, amount int64) transfer.Move {
	return transfer.Move{From: from, To: to, Amount: amount, Currency: "EUR"}
}

// ask is a fresh request of the client.
func ask(client uuid.UUID) transfer.Request { return askBy(client, uuid.NewString()) }

func askBy(client uuid.UUID, key string) transfer.Request {
	return transfer.Request{Client: client, Key: key, Fingerprint: sha256.Sum256([]byte("body"))}
}

// money is balance and held of an account.
func (b *bank) money(id uuid.UUID) (balance, held int64) {
	b.t.Helper()
	err := b.pool.QueryRow(context.Background(), `SELECT balance, held FROM accounts WHERE id = $1`, id).Scan(&balance, &held)
	if err != nil {
		b.t.Fatal(err)
	}
	return balance, held
}

// mustHave checks balance and held of an account.
func (b *bank) mustHave(id uuid.UUID, balance, held int64) {
	b.t.Helper()
	if gotBalance, gotHeld := b.money(id); gotBalance != balance || gotHeld != held {
		b.t.Errorf("balance %d, held %d, want %d and %d", gotBalance, gotHeld, balance, held)
	}
}

// number asks the database for one number.
func (b *bank) number(sql string, args ...any) (n int64) {
	b.t.Helper()
	if err := b.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// posted counts the transfers that moved money.
func (b *bank) posted() int64 {
	return b.number(`SELECT count(*) FROM transfers WHERE state = 'posted'`)
}

// eventually polls a condition, with a deadline.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// schema is the name of the bank's schema.
func (b *bank) schema() string {
	u, err := url.Parse(b.url)
	if err != nil {
		b.t.Fatal(err)
	}
	return u.Query().Get("search_path")
}

// isRefused tells a stored refusal from a transfer, in the default encoding.
func isRefused(r transfer.Reply) bool { return bytes.HasPrefix(r.Body, []byte(`{"refused"`)) }

// transferred reads a Reply in the default encoding.
func (b *bank) transferred(r transfer.Reply, err error) (tr transfer.Transfer) {
	b.t.Helper()
	if err != nil || isRefused(r) {
		b.t.Fatalf("%s, %v", r.Body, err)
	}
	if err := json.Unmarshal(r.Body, &tr); err != nil {
		b.t.Fatal(err)
	}
	return tr
}
