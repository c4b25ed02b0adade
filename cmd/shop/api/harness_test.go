// SPDX-License-Identifier: MIT

package api_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/transfer"
)

// shop is the real handler with the real inventory in a schema of its own, reached over HTTP.
type shop struct {
	t             *testing.T
	api           string // its address
	pool          *pgxpool.Pool
	service       *inventory.Service
	transfers     *transfer.Service
	walletBackend *walletBackend // nil without the option withWallets
	front         api.Config
	server        *api.Server
	metrics       *prometheus.Registry
	log           *lines
	keys          map[string]string // of alice, bob and admin
	ids           map[string]uuid.UUID
	http          *http.Client
	spec          *specChecker
}

// option changes the configuration of a shop.
type option func(*api.Config, *inventory.Config)

func open(t *testing.T, options ...option) *shop {
	t.Helper()
	s := &shop{
		t: t, metrics: prometheus.NewRegistry(), log: &lines{},
		keys: map[string]string{}, ids: map[string]uuid.UUID{}, spec: newSpecChecker(t),
	}
	s.pool = pgtest.New(t, "inventory", "transfer", "cmd/shop/api").Pool
	log := slog.New(slog.NewJSONHandler(s.log, nil))
	stock := inventory.Config{Pool: s.pool, Strategy: "row", Encode: api.Encode, Log: log}
	front := api.Config{
		Pool: s.pool, Log: log, Metrics: s.metrics,
		Audit: func(context.Context) (map[string]map[string]int64, error) {
			return map[string]map[string]int64{"inventory": {"S1": 0}}, nil
		},
	}
	for _, o := range options {
		o(&front, &stock)
	}
	s.service = must(inventory.New(stock))(t)
	if front.Orders == nil {
		front.Orders = func(strategy string) (api.Buyer, error) {
			if strategy == "" {
				return s.service, nil
			}
			return s.service.With(strategy)
		}
	}
	front.Catalog = s.service
	s.openTransferBackend(&front)
	s.openWalletBackend(&front)
	if front.Ready == nil {
		front.Ready = func(ctx context.Context) (api.Degraded, error) {
			return api.Degraded{Locks: s.service.Degraded(ctx)}, api.Ping(ctx, s.pool)
		}
	}
	s.front, s.server = front, must(api.New(front))(t)
	s.stock()
	s.serve()
	return s
}

// stock adds clients and products to the tables.
func (s *shop) stock() {
	s.t.Helper()
	ctx := s.t.Context()
	for _, name := range []string{"alice", "bob", "admin"} {
		id, key, err := api.AddClient(ctx, s.pool, name, name == "admin")
		if err != nil {
			s.t.Fatal(err)
		}
		s.ids[name], s.keys[name] = id, key
	}
	for _, p := range []inventory.Product{
		{SKU: "coffee", Name: "Coffee", Price: 890, Currency: "EUR", Stock: 100},
		{SKU: "tea", Name: "Tea", Price: 640, Currency: "EUR", Stock: 100},
		{SKU: "last-one", Name: "The last one", Price: 9900, Currency: "EUR", Stock: 1},
		{SKU: "dollar", Name: "Something in dollars", Price: 100, Currency: "USD", Stock: 100},
	} {
		if _, err := s.service.AddProduct(ctx, p); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *shop) serve() {
	server := httptest.NewServer(s.server)
	s.api = server.URL
	s.http = &http.Client{Transport: &http.Transport{}}
	s.t.Cleanup(func() {
		s.http.CloseIdleConnections()
		server.Close()
	})
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// lines is a log that can be read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// selling sells with one Buyer, whatever the strategy is.
func selling(b api.Buyer) api.Orders { return func(string) (api.Buyer, error) { return b, nil } }
