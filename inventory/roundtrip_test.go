// SPDX-License-Identifier: MIT

package inventory_test

import (
	"net"
	"sync/atomic"
	"testing"

	"shop/inventory"
	"shop/locking/servertest"
)

// The round trips of a purchase to PostgreSQL, as counted by a proxy, including the lookup
// of the key. The row is locked only during the last one, or with a purchase limit during the last two.
func TestBuy_RoundTrips(t *testing.T) {
	t.Parallel()
	for strategy, want := range map[string]int{
		"naive": 3, "redis-only": 3, "redis+row": 3, "row": 3, "atomic": 3,
		"optimistic": 4, "serializable": 3, "advisory": 3, "advisory-try": 3, "slots": 3,
	} {
		s := openWithRedis(t, inventory.Config{Strategy: strategy})
		cfg := s.cfg
		var p *servertest.Proxy
		p, cfg.Pool = s.behindProxy()
		buyer, _ := s.another(cfg)
		var lines, limited []inventory.Line
		for _, sku := range []string{"trips A", "trips B", "trips C"} { // unique among tests: all schemas share advisory locks
			s.stock(sku, 5)
			lines = append(lines, one(sku)...)
			s.limited("limited "+sku, 5, 5)
			limited = append(limited, one("limited "+sku)...)
		}
		buy := func(lines []inventory.Line) {
			t.Helper()
			if _, err := buyer.Buy(t.Context(), newRequest(), lines); err != nil {
				t.Fatal(err)
			}
		}
		buy(lines) // prepares the statements
		buy(limited)
		var trips atomic.Int64
		p.OnRequest(func(b []byte, _, _ net.Conn) bool {
			if n := len(b); n >= 5 && string(b[n-5:]) == "S\x00\x00\x00\x04" { // Sync
				trips.Add(1)
			}
			return true
		})
		buy(lines)
		if got := int(trips.Swap(0)); got != want {
			t.Errorf("%s: %d round trips, want %d", strategy, got, want)
		}
		buy(limited)
		if got := int(trips.Load()); got != want+1 {
			t.Errorf("%s, with purchase limits: %d round trips, want %d", strategy, got, want+1)
		}
	}
}
