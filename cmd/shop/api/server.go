// SPDX-License-Identifier: MIT

package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"shop/inventory"
	"shop/locking/idempotency/pgtx"
	"shop/transfer"
	"shop/wallet"
)

// Buyer takes stock; *inventory.Service implements it.
type Buyer interface {
	Buy(ctx context.Context, req inventory.Request, lines []inventory.Line) (inventory.Reply, error)
}

// Orders returns the Buyer with a strategy; "" means the configured one.
type Orders func(strategy string) (Buyer, error)

// Catalog serves the routes of products and orders that need no strategy; *inventory.Service implements it.
type Catalog interface {
	Products(ctx context.Context) ([]inventory.Product, error)
	Product(ctx context.Context, sku string) (inventory.Product, error)
	Order(ctx context.Context, client, id uuid.UUID) (inventory.Order, error)
	Cancel(ctx context.Context, req inventory.Request, id uuid.UUID) (inventory.Reply, error)
}

// Books reads transfers and accounts, which needs no locks; *transfer.Service
// implements it.
type Books interface {
	Find(ctx context.Context, client, id uuid.UUID) (transfer.Transfer, error)
	Account(ctx context.Context, client, id uuid.UUID) (transfer.Account, error)
}

// Transfers returns the Service that moves money with a strategy; "" means the configured
// one. It returns an error while there is no Service.
type Transfers func(strategy string) (*transfer.Service, error)

// Wallets returns the Service that writes to wallets with a strategy; "" means the
// configured one. It returns an error while there is no Service.
type Wallets func(strategy string) (*wallet.Service, error)

// Config configures a Server.
type Config struct {
	Pool        *pgxpool.Pool // where the clients are, and the keys of orders and transfers
	Orders      Orders
	Catalog     Catalog
	Books       Books
	Transfers   Transfers
	Wallets     Wallets
	Ready       func(context.Context) (Degraded, error)                    // the check of /readyz
	Audit       func(context.Context) (map[string]map[string]int64, error) // flow → invariant → violations
	Lab         []string                                                   // strategies that a request may choose; nil: not a lab
	TransferLab []string                                                   // … of transfers
	WalletLab   []string                                                   // … of wallets
	Limits      Limits
	Log         *slog.Logger
	Metrics     prometheus.Registerer
}

func (c Config) complete() bool {
	return c.Pool != nil && c.Orders != nil && c.Catalog != nil && c.Books != nil && c.Transfers != nil && c.Wallets != nil &&
		c.Ready != nil && c.Audit != nil && c.Log != nil && c.Metrics != nil
}

// Limits bound the requests of one client or of all clients.
type Limits struct {
	Request  time.Duration // a whole request, including reading its body; 0: 5 s
	InFlight int           // concurrent requests of all clients, counted after their bodies were read; 0: 256
	Share    int           // concurrent requests of one client, including those whose body is being read; 0: a quarter of InFlight
	Rate     float64       // requests per second of one client; 0: no limit
	Failures float64       // unknown keys per second of one remote address; 0: no limit
	Body     int64         // bytes; 0: 16 KiB
	Keys     int64         // stored keys of one client, in each database; 0: no limit
	Count    time.Duration // how often a replica counts the keys of a client, at most; 0: 30 s
}

func (l Limits) withDefaults() Limits {
	if l.Request == 0 {
		l.Request = 5 * time.Second
	}
	if l.InFlight == 0 {
		l.InFlight = 256
	}
	if l.Share == 0 {
		l.Share = max(1, l.InFlight/4)
	}
	if l.Body == 0 {
		l.Body = 16 << 10
	}
	l.Count = cmp.Or(l.Count, 30*time.Second)
	return l
}

// Server is an http.Handler.
type Server struct {
	cfg      Config
	log      *slog.Logger
	echo     *echo.Echo
	keyring  *keyring
	metrics  *metrics
	room     chan struct{} // one slot for each request at work
	keys     *pgtx.DB      // where the keys of orders and transfers are
	stored   *storedKeys
	reading  reading
	draining atomic.Bool

	readiness readiness
}

// New returns a Server, without network I/O.
//
// doc.go lists the middleware in the same order. observe must be outside recover, or a
// panic would leave no log line. deadline must be inside observe, because it cancels its
// context when it returns.
func New(cfg Config) (*Server, error) {
	if !cfg.complete() {
		return nil, errors.New("api: Config needs everything but Lab and Limits")
	}
	cfg.Limits = cfg.Limits.withDefaults()
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, err
	}
	ops, err := operations()
	if err != nil {
		return nil, err
	}
	keys, err := pgtx.New(pgtx.Config{Pool: cfg.Pool})
	if err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	s := &Server{
		cfg: cfg, log: cfg.Log, echo: echo.New(), metrics: m,
		keyring: newKeyring(cfg.Pool, cfg.Limits.Failures), room: make(chan struct{}, cfg.Limits.InFlight),
		keys: keys, stored: &storedKeys{log: cfg.Log, max: cfg.Limits.Keys, every: cfg.Limits.Count, last: map[keysOf]keyCount{}},
		reading:   reading{conns: map[*http.ResponseController]struct{}{}},
		readiness: readiness{check: cfg.Ready, log: cfg.Log, kept: readyKept},
	}
	// Echo's default handler asserts the error's type, which turns a wrapped 404 into a 500.
	s.echo.HTTPErrorHandler = s.answer
	// The remote address comes from the connection: any client can set X-Forwarded-For.
	s.echo.IPExtractor = echo.ExtractIPDirect()
	s.echo.Use(
		endBody, s.headers, s.observe, recoverPanic, ops.find,
		s.deadline, s.authenticate, limitClients(newRates[uuid.UUID](cfg.Limits.Rate)), newShares(cfg.Limits.Share).limit,
		s.body, s.admit, validate, s.limitKeys,
	)
	RegisterHandlers(s.echo, handlers{s})
	return s, nil
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.echo.ServeHTTP(w, r) }

// Drain makes /readyz reply 503, so that load balancers send no more requests. Requests
// are still served.
func (s *Server) Drain() { s.draining.Store(true) }

// Close bounds the reading of bodies: a request whose body does not arrive within bodyRest
// gets 503. Call Close when the listener closes. Requests in flight continue.
func (s *Server) Close() { s.reading.close() }
