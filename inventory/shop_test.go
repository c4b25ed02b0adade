// SPDX-License-Identifier: MIT

package inventory_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"testing"

	"github.com/google/uuid"

	"shop/inventory"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
)

type events = locktest.Counts[inventory.EventKind] // what the Service reports

// shop is a schema for one test on the real server, with helpers.
type shop struct {
	*inventory.Service
	*pgtest.Database
	cfg      inventory.Config
	armedCfg inventory.Config // with a pool through a proxy
	events   *events
}

// open makes a schema with the tables, and opens a Service on it with cfg.
func open(t testing.TB, cfg inventory.Config) *shop {
	t.Helper()
	return openOn(pgtest.New(t, "inventory"), cfg)
}

// openOn is open on a schema that has its tables.
func openOn(d *pgtest.Database, cfg inventory.Config) *shop {
	d.T.Helper()
	s := &shop{Database: d, cfg: cfg}
	s.cfg.Pool = s.Pool
	if s.cfg.Strategy == "" {
		s.cfg.Strategy = "row"
	}
	s.Service, s.events = s.another(s.cfg)
	return s
}

// another opens a second Service, as another replica would.
func (s *shop) another(cfg inventory.Config) (*inventory.Service, *events) {
	s.T.Helper()
	e := &events{}
	if cfg.Count == nil {
		cfg.Count = e.Count
	}
	svc, err := inventory.New(cfg)
	if err != nil {
		s.T.Fatal(err)
	}
	return svc, e
}

// stock adds a product with n units at 100 cents.
func (s *shop) stock(sku string, n int64) {
	s.T.Helper()
	created, err := s.AddProduct(s.T.Context(), inventory.Product{SKU: sku, Name: sku, Price: 100, Currency: "EUR", Stock: n})
	if err != nil || !created {
		s.T.Fatalf("AddProduct(%q): created %v, %v", sku, created, err)
	}
}

// restock adds units to a product's stock.
func (s *shop) restock(sku string, n int64) {
	s.T.Helper()
	s.Exec(`
		WITH stocked AS (
			UPDATE products
			SET stock = stock + $2, version = version + 1
			WHERE sku = $1
			RETURNING sku)
		INSERT INTO stock_movements (sku, kind, quantity)
		SELECT sku, 'restock', $2 FROM stocked`, sku, n)
}

// newRequest returns a new request of a new client.
func newRequest() inventory.Request { return requestBy(uuid.New(), uuid.NewString()) }

func requestBy(client uuid.UUID, key string) inventory.Request {
	return inventory.Request{Client: client, Key: key, Fingerprint: sha256.Sum256([]byte("body"))}
}

func one(sku string) []inventory.Line { return []inventory.Line{{SKU: sku, Quantity: 1}} }

// left returns the stock of a product.
func (s *shop) left(sku string) int64 {
	s.T.Helper()
	p, err := s.Product(context.Background(), sku)
	if err != nil {
		s.T.Fatal(err)
	}
	return p.Stock
}

// isRefused reports whether a stored reply is a refusal, in the default encoding.
func isRefused(r inventory.Reply) bool { return bytes.HasPrefix(r.Body, []byte(`{"refused"`)) }
