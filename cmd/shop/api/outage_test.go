// SPDX-License-Identifier: MIT

package api_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/transfer"
)

// besideWith starts another server of the same shop, with other settings.
func (s *shop) besideWith(change func(*api.Config)) *shop {
	s.t.Helper()
	other := *s
	other.metrics = prometheus.NewRegistry()
	other.front.Metrics = other.metrics
	change(&other.front)
	other.server = must(api.New(other.front))(s.t)
	other.serve()
	return &other
}

// When the lookup of the API key fails, nothing was done: 500 would leave the outcome of a purchase open.
func TestOutage_WithoutTheDatabaseOfKeysNothingWasDone(t *testing.T) {
	t.Parallel()
	silent := must(net.Listen("tcp", "127.0.0.1:0"))(t) // the kernel accepts, but nothing answers
	t.Cleanup(func() { silent.Close() })
	s := open(t)
	for name, address := range map[string]string{"refused": "127.0.0.1:1", "silent": silent.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			away := s.besideWith(func(c *api.Config) {
				c.Pool = pgtest.Pool(t, "postgres://none@"+address+"/none?sslmode=disable&connect_timeout=60")
				c.Limits.Request = 500 * time.Millisecond
			})
			for _, a := range []answer{away.buy("k", "coffee", "1"), away.do("GET", "/v1/products", "")} {
				if a.want(t, 503, api.TypeBusy).header.Get("Retry-After") == "" {
					t.Error("503 without Retry-After")
				}
			}
		})
	}
	s.wantOrders(0)
}

func TestOutage_AReadWithoutItsDatabaseIs503AndNot500(t *testing.T) {
	locktest.Slow(t, "real time-outs")
	t.Parallel()
	s := open(t)
	pool := pgtest.Pool(t, "postgres://none@127.0.0.1:1/none?sslmode=disable")
	away := s.besideWith(func(c *api.Config) {
		stock := must(inventory.New(inventory.Config{Pool: pool, Strategy: "row", Encode: api.Encode}))(t)
		c.Orders, c.Catalog = selling(stock), stock
		c.Books = must(transfer.New(transfer.Config{Pool: pool, Strategy: "row", Encode: api.EncodeTransfer}))(t)
	})
	for _, path := range []string{
		"/v1/products", "/v1/products/coffee", "/v1/orders/" + uuid.NewString(), "/v1/transfers/" + uuid.NewString(), "/v1/accounts/" + uuid.NewString(),
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			away.do("GET", path, "").want(t, 503, api.TypeBusy)
		})
	}
}

// A missing table is no outage: retrying does not help.
func TestOutage_ABugIsNoOutage(t *testing.T) {
	t.Parallel()
	s := open(t)
	if _, err := s.pool.Exec(t.Context(), `ALTER VIEW products_with_slots RENAME TO wares; ALTER TABLE clients RENAME TO callers`); err != nil {
		t.Fatal(err)
	}
	s.do("GET", "/v1/products", "").want(t, 500, api.TypeInternal)
	if _, err := s.pool.Exec(t.Context(), `ALTER TABLE callers RENAME TO clients`); err != nil {
		t.Fatal(err)
	}
	s.do("GET", "/v1/products", "").want(t, 500, api.TypeInternal)
}

// The lookup of the Idempotency-Key comes first: if it times out in PostgreSQL, nothing
// was done.
func TestOutage_AKeyThatCannotBeLookedUpIsBusy(t *testing.T) {
	locktest.Slow(t, "real time-outs")
	t.Parallel()
	s := open(t)
	conn := must(pgx.ConnectConfig(t.Context(), s.pool.Config().ConnConfig))(t)
	defer conn.Close(context.Background())
	tx := must(conn.Begin(t.Context()))(t)
	if _, err := tx.Exec(t.Context(), `SET idle_in_transaction_session_timeout = 0`); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `LOCK TABLE idempotency_keys`); err != nil {
		t.Fatal(err)
	}
	from, to := uuid.NewString(), uuid.NewString()
	for _, a := range []answer{
		s.buy("k", "coffee", "1"),
		s.do("POST", "/v1/orders/"+uuid.NewString()+"/cancel", "", "Idempotency-Key: k"),
		s.move("k", `{"from":"`+from+`","to":"`+to+`","amount":1,"currency":"EUR"}`),
	} {
		a.want(t, 503, api.TypeBusy)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.buy("k", "coffee", "1").want(t, 201, "")
	s.wantOrders(1)
}

// The tables are too large for the audit of a request. A repetition does not help, and the answer says what does.
func TestOutage_AnAuditThatTakesTooLongSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s := open(t)
	for name, err := range map[string]error{
		"PostgreSQL's limit": fmt.Errorf("audit S1 pairs: %w", &pgconn.PgError{Code: "57014", Severity: "ERROR"}),
		"MongoDB's limit":    fmt.Errorf("audit M2 operations: %w", context.DeadlineExceeded),
		"the request's":      nil,
	} {
		slow := s.besideWith(func(c *api.Config) {
			c.Limits.Request = time.Second
			c.Audit = func(ctx context.Context) (map[string]map[string]int64, error) {
				if err != nil {
					return nil, err
				}
				<-ctx.Done()
				return nil, errors.New("the driver's own words")
			}
		})
		a := slow.do("GET", "/v1/audit", "", s.as("admin")).want(t, 503, api.TypeBusy)
		if !strings.Contains(a.problem.Detail, "1s") || !strings.Contains(a.problem.Detail, "shop audit") {
			t.Errorf("%s: %q", name, a.problem.Detail)
		}
	}
}
