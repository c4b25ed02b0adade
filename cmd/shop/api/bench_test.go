// SPDX-License-Identifier: MIT

package api

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/inventory"
)

// atOnce is a domain that costs nothing, so the benchmark measures this package alone.
type atOnce struct{}

func (atOnce) Buy(context.Context, inventory.Request, []inventory.Line) (inventory.Reply, error) {
	return Encode(inventory.Order{ID: uuid.Nil, Status: inventory.Confirmed, Currency: "EUR"}, nil)
}

// BenchmarkBuy_APIOverhead is what HTTP, keys, limits, validation and the log cost.
func BenchmarkBuy_APIOverhead(b *testing.B) {
	s := unconnected(b, func(c *Config) {
		c.Orders, c.Log = func(string) (Buyer, error) { return atOnce{}, nil }, slog.New(slog.NewJSONHandler(io.Discard, nil))
	})
	key := newKey()
	s.keyring.held[[32]byte(hashKey(key))] = heldKey{client: Client{ID: uuid.New()}, until: time.Now().Add(time.Hour)}
	const body = `{"lines":[{"sku":"coffee","quantity":1},{"sku":"tea","quantity":2}]}`
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest("POST", "/v1/orders", strings.NewReader(body))
		r.Header = http.Header{"Authorization": {"Bearer " + key}, "Content-Type": {"application/json"}, "Idempotency-Key": {"k"}}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != 201 {
			b.Fatalf("%d %s", w.Code, w.Body)
		}
	}
}
