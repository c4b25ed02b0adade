package pgtx_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
)

func TestMain(m *testing.M) {
	if step := os.Getenv("PGTX_KILL_AT"); step != "" {
		child(pgtx.Step(step)) // see kill_test.go
	}
	goleak.VerifyTestMain(m)
}

// database is a schema of its own on the real server: counters to raise, and one
// row in effects for each raise, which nothing but the key keeps from being two.
type database struct {
	*pgtx.DB
	t    testing.TB
	url  string // with search_path
	pool *pgxpool.Pool
	*events
}

type events struct {
	mu sync.Mutex
	n  map[pgtx.Event]int
}

func (e *events) count(event pgtx.Event, _ string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n[event]++
}

func (e *events) of(event pgtx.Event) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.n[event]
}

const schema = `
	CREATE TABLE counters (
		name text PRIMARY KEY,
		n    bigint NOT NULL CONSTRAINT counters_enough CHECK (n <= 1000)
	);
	CREATE TABLE effects (client_id uuid NOT NULL, key text NOT NULL);
	INSERT INTO counters VALUES ('a', 0), ('b', 0);`

// newDatabase makes a schema and opens a DB on it; cfg may be nil.
func newDatabase(t testing.TB, cfg func(*pgtx.Config)) *database {
	t.Helper()
	base := os.Getenv("SHOP_POSTGRES_URL")
	if base == "" {
		t.Fatal("SHOP_POSTGRES_URL is not set: run the tests with `make test`, or set it to a PostgreSQL server")
	}
	name := "t_" + strings.ToLower(rand.Text())
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("search_path", name)
	u.RawQuery = query.Encode()

	d := &database{t: t, url: u.String()}
	conn, err := pgx.Connect(t.Context(), d.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // t.Context has ended by now
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := conn.Exec(ctx, "DROP SCHEMA "+name+" CASCADE"); err != nil {
			t.Errorf("drop schema: %v", err)
		}
		_ = conn.Close(ctx)
	})
	if _, err := conn.Exec(t.Context(), "CREATE SCHEMA "+name); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	if err := pgtx.Migrate(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	d.pool = newPool(t, d.url)
	d.DB, d.events = d.open(d.pool, cfg)
	return d
}

// open makes another DB, as another process has.
func (d *database) open(pool *pgxpool.Pool, change func(*pgtx.Config)) (*pgtx.DB, *events) {
	d.t.Helper()
	e := &events{n: map[pgtx.Event]int{}}
	cfg := pgtx.Config{Pool: pool, Guards: []string{"counters_enough"}, Count: e.count}
	if change != nil {
		change(&cfg)
	}
	db, err := pgtx.New(cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	return db, e
}

// newPool is a pool with the limits of PoolConfig, unless settings say otherwise.
func newPool(t testing.TB, url string, settings ...string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgtx.PoolConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 8
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

// ask is a request with a fresh key of a fresh client.
func ask() idempotency.Request {
	return idempotency.Request{Client: uuid.New(), Key: uuid.NewString(), Fingerprint: [32]byte{1}}
}

// raise is a body that reads a counter under its lock, and writes what it
// computed. Its reply is the counter's new value.
func raise(req idempotency.Request, name string) pgtx.Body {
	return raiseBy(req, name, `SELECT n FROM counters WHERE name = $1 FOR UPDATE`)
}

func raiseBy(req idempotency.Request, name, read string) pgtx.Body {
	return func(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
		n, err := pgtx.Select[int64](ctx, tx, read, name)
		if err != nil {
			return idempotency.Reply{}, err
		}
		if len(n) == 0 {
			return idempotency.Reply{}, errors.New("no such counter")
		}
		if err := tx.Step(ctx, pgtx.AfterGuard); err != nil {
			return idempotency.Reply{}, err
		}
		tx.Exec(`UPDATE counters SET n = $2 WHERE name = $1`, name, n[0]+1)
		tx.Exec(`INSERT INTO effects VALUES ($1, $2)`, req.Client, req.Key)
		return idempotency.Reply{Status: 201, Body: strconv.AppendInt(nil, n[0]+1, 10)}, nil
	}
}

// refuse is a body that locks a counter and refuses.
func refuse(name string) pgtx.Body {
	return func(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
		tx.Exec(`UPDATE counters SET n = n + 100 WHERE name = $1`, name) // sent with the read
		if _, err := pgtx.Select[int64](ctx, tx, `SELECT n FROM counters WHERE name = $1 FOR UPDATE`, name); err != nil {
			return idempotency.Reply{}, err
		}
		tx.Exec(`UPDATE counters SET n = n + 100 WHERE name = $1`, name) // never sent
		return pgtx.Refuse(idempotency.Reply{Status: 409, Body: []byte("no")})
	}
}

// number asks the database for one number, past DB.
func (d *database) number(sql string, args ...any) (n int64) {
	d.t.Helper()
	if err := d.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		d.t.Fatal(err)
	}
	return n
}

// want checks counter a, the effects, and that no key has two of them.
func (d *database) want(n int64) {
	d.t.Helper()
	if got := d.number(`SELECT n FROM counters WHERE name = 'a'`); got != n {
		d.t.Errorf("counter %d, want %d", got, n)
	}
	if got := d.number(`SELECT count(*) FROM effects`); got != n {
		d.t.Errorf("%d effects, want %d", got, n)
	}
	if twice := d.number(`SELECT count(*) FROM (SELECT FROM effects GROUP BY client_id, key HAVING count(*) > 1) AS twice`); twice != 0 {
		d.t.Errorf("%d keys took effect twice", twice)
	}
	if free := d.number(`SELECT count(*) FROM effects e LEFT JOIN idempotency_keys k USING (client_id, key) WHERE k.key IS NULL`); free != 0 {
		d.t.Errorf("%d effects without a key", free)
	}
}

// holding runs sql in a transaction that stays open until release.
func (d *database) holding(sql string, args ...any) (release func()) {
	d.t.Helper()
	tx, err := newPool(d.t, d.url, "idle_in_transaction_session_timeout=0").Begin(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := tx.Exec(d.t.Context(), sql, args...); err != nil {
		d.t.Fatal(err)
	}
	release = func() { _ = tx.Rollback(context.Background()) }
	d.t.Cleanup(release)
	return release
}

// blocked waits until as many sessions wait for a lock in this schema.
func (d *database) blocked(n int64) {
	d.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		if d.number(`
			SELECT count(DISTINCT pid)
			FROM pg_locks
			WHERE NOT granted
			AND pid IN (SELECT pid FROM pg_locks WHERE relation IN ('counters'::regclass, 'idempotency_keys'::regclass))`) >= n {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("%d sessions never waited", n)
		}
	}
}
