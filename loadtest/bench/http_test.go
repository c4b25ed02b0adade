// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/loadtest/site"
	"shop/locking/servertest"
	"shop/locking/servertest/daemon"
	"shop/transfer"
	"shop/wallet"
)

const (
	// requestTimeout is above the wait of the last of all clients at the row lock.
	requestTimeout = 30 * time.Second
	// inFlight is how many requests a replica may have at work.
	inFlight = 4096
	// emptyPOST does everything that shop serve does for a purchase, except the purchase.
	emptyPOST = "empty-POST"
)

// BenchmarkHTTPProduct lets clients buy one product from three processes of shop serve, on loopback and in turn.
func BenchmarkHTTPProduct(b *testing.B) {
	clients := 256
	if testing.Short() {
		clients = 32
	}
	b.Run(fmt.Sprintf("clients=%d/processes=3", clients), func(b *testing.B) {
		p, measured := preparePostgres(b), map[string]float64{}
		for _, strategy := range inTurn([]string{"combined", emptyPOST, "row"}) {
			b.Run("strategy="+strategy, func(b *testing.B) {
				replicas, err := site.StartReplicas(b.Context(), replica(b, p, strategy), 3, site.NewCounters(""))
				must(b, err)
				defer replicas.KillAll()
				client := &http.Client{Timeout: requestTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
				defer client.CloseIdleConnections()
				var next atomic.Int64
				bases := replicas.Bases()
				buy := func(ctx context.Context) error { return post(ctx, client, bases[int(next.Add(1))%len(bases)], p.Key) }
				_, err = closedLoop(b.Context(), clients, buy, interval()/4) // connects, prepares statements
				must(b, err)
				b.ResetTimer()
				l, err := closedLoop(b.Context(), clients, buy, interval())
				b.StopTimer()
				must(b, err)
				measured[strategy] = report(b, l.Over, l.Waits)
				replicas.Stop(b.Context())
				mustHold(b, "product", p)
			})
		}
		for _, other := range []string{emptyPOST, "row"} {
			ratio(b, "strategy=combined", other, measured["combined"], measured[other])
		}
	})
}

// replica returns how to start shop serve, or the API alone for emptyPOST. The limits of the API are so high that
// they refuse nothing.
func replica(b *testing.B, p place, strategy string) site.Program {
	b.Helper()
	if strategy != emptyPOST {
		return site.Program{Path: "../../bin/shop", Logs: b.TempDir(), Spawn: daemon.Spawn, Args: func(_ int, listen, metrics string) []string {
			return []string{
				"serve", "--listen", listen, "--metrics-listen", metrics, "--postgres-url", p.Postgres, "--redis-url", os.Getenv("SHOP_REDIS_URL"),
				"--lock-prefix", p.Prefix, "--strategy", strategy, "--transfer-strategy", "row", "--rate-limit", "0", "--max-keys", "0", "--request-timeout", requestTimeout.String(),
				"--max-in-flight", fmt.Sprint(inFlight), "--max-per-client", fmt.Sprint(inFlight),
			}
		}}
	}
	self, err := os.Executable()
	must(b, err)
	return site.Program{
		Path: self, Logs: b.TempDir(), Args: func(_ int, listen, _ string) []string { return []string{p.Postgres, listen} },
		Spawn: func(cmd *exec.Cmd) error {
			cmd.Env = servertest.Process(b, "empty").Env
			return daemon.Spawn(cmd)
		},
	}
}

// post buys one unit of the hot product.
func post(ctx context.Context, client *http.Client, base, key string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/orders", bytes.NewReader([]byte(`{"lines":[{"sku":"`+hotSKU+`","quantity":1}]}`)))
	if err != nil {
		return err
	}
	req.Header = http.Header{"Authorization": {"Bearer " + key}, "Content-Type": {"application/json"}, "Idempotency-Key": {uuid.NewString()}}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusCreated {
		err = fmt.Errorf("POST %s/v1/orders: %s %s", base, res.Status, body)
	}
	return err
}

// noDomain answers without work. The API reads and checks the same request, and writes an answer of the same size.
type noDomain struct{}

func (noDomain) Buy(_ context.Context, req inventory.Request, lines []inventory.Line) (inventory.Reply, error) {
	order := inventory.Order{
		ID: uuid.New(), Client: req.Client, Status: inventory.Confirmed, Currency: "EUR", Total: 100 * lines[0].Quantity, CreatedAt: time.Now().UTC(),
		Lines: []inventory.OrderLine{{SKU: lines[0].SKU, Quantity: lines[0].Quantity, UnitPrice: 100}},
	}
	return api.Encode(order, nil)
}

// serveEmpty is the role of a replica of emptyPOST: package api, with its real clients, limits, log and metrics, on the
// database of its first argument. It serves until it is killed.
func serveEmpty(args []string) error {
	pool, err := connect(context.Background(), place{Postgres: args[0]})
	if err != nil {
		return err
	}
	unused := errors.New("not part of this server")
	service, err := inventory.New(inventory.Config{Pool: pool, Strategy: "row"})
	if err != nil {
		return err
	}
	books, err := transfer.New(transfer.Config{Pool: pool, Strategy: "row"})
	if err != nil {
		return err
	}
	handler, err := api.New(api.Config{
		Pool: pool, Catalog: service, Books: books,
		Orders:    func(string) (api.Buyer, error) { return noDomain{}, nil },
		Transfers: func(string) (*transfer.Service, error) { return nil, unused },
		Wallets:   func(string) (*wallet.Service, error) { return nil, unused },
		Ready:     func(context.Context) (api.Degraded, error) { return api.Degraded{}, nil },
		Audit:     func(context.Context) (map[string]map[string]int64, error) { return nil, unused },
		Limits:    api.Limits{Request: requestTimeout, InFlight: inFlight, Share: inFlight},
		Log:       slog.New(slog.NewJSONHandler(os.Stderr, nil)), Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", args[1])
	if err != nil {
		return err
	}
	web := &http.Server{Handler: handler, ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: 2 * requestTimeout}
	return web.Serve(listener)
}
