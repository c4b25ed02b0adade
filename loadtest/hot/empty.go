// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/transfer"
	"shop/wallet"
)

// emptyPOST is the name of the baseline that does everything that shop serve does for a purchase, except the purchase.
const emptyPOST = "empty POST"

// inFlight is how many requests a replica may have at work.
const inFlight = 4096

// empty says where to serve it, and the database with the clients of the API.
type empty struct{ Postgres, Listen string }

// noDomain answers without work. The API reads and checks the same request, and writes an answer of the same size.
type noDomain struct{}

func (noDomain) Buy(_ context.Context, req inventory.Request, lines []inventory.Line) (inventory.Reply, error) {
	order := inventory.Order{
		ID: uuid.New(), Client: req.Client, Status: inventory.Confirmed, Currency: "EUR", Total: 100 * lines[0].Quantity, CreatedAt: time.Now().UTC(),
		Lines: []inventory.OrderLine{{SKU: lines[0].SKU, Quantity: lines[0].Quantity, UnitPrice: 100}},
	}
	return api.Encode(order, nil)
}

// beEmpty serves until ctx ends.
func beEmpty(ctx context.Context, text string) error {
	var e empty
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return err
	}
	pool, err := connect(ctx, place{Postgres: e.Postgres})
	if err != nil {
		return err
	}
	defer pool.Close()
	server, err := newEmpty(pool)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", e.Listen)
	if err != nil {
		return err
	}
	web := &http.Server{Handler: server, ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: 2 * requestTimeout}
	stop := context.AfterFunc(ctx, func() { _ = web.Close() })
	defer stop()
	if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// newEmpty makes the server of package api, with its real clients, limits, log and metrics.
func newEmpty(pool *pgxpool.Pool) (*api.Server, error) {
	unused := errors.New("not part of this server")
	service, err := inventory.New(inventory.Config{Pool: pool, Strategy: "row"})
	if err != nil {
		return nil, err
	}
	books, err := transfer.New(transfer.Config{Pool: pool, Strategy: "row"})
	if err != nil {
		return nil, err
	}
	return api.New(api.Config{
		Pool: pool, Catalog: service, Books: books,
		Orders:    func(string) (api.Buyer, error) { return noDomain{}, nil },
		Transfers: func(string) (*transfer.Service, error) { return nil, unused },
		Wallets:   func(string) (*wallet.Service, error) { return nil, unused },
		Ready:     func(context.Context) (api.Degraded, error) { return api.Degraded{}, nil },
		Audit:     func(context.Context) (map[string]map[string]int64, error) { return nil, unused },
		Limits:    api.Limits{Request: requestTimeout, InFlight: inFlight, Share: inFlight},
		Log:       slog.New(slog.NewJSONHandler(os.Stderr, nil)), Metrics: prometheus.NewRegistry(),
	})
}
