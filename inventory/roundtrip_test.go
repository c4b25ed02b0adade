package inventory_test

import (
	"net"
	"sync/atomic"
	"testing"

	"shop/inventory"
	"shop/locking/locktest"
)

// The round trips of a purchase to PostgreSQL, as counted by a proxy, including the lookup
// of the key. The row is locked only during the last one.
func TestBuy_RoundTrips(t *testing.T) {
	t.Parallel()
	for strategy, want := range map[string]int{
		"naive": 3, "redis-only": 3, "redis+row": 3, "row": 3, "atomic": 3,
		"optimistic": 4, "serializable": 3, "advisory": 3, "advisory-try": 3,
	} {
		s := openWithRedis(t, inventory.Config{Strategy: strategy})
		cfg := s.cfg
		var p *locktest.Proxy
		p, cfg.Pool = s.behindProxy()
		buyer, _ := s.another(cfg)
		var lines []inventory.Line
		for _, sku := range []string{"trips A", "trips B", "trips C"} { // unique among tests: all schemas share advisory locks
			s.stock(sku, 5)
			lines = append(lines, one(sku)...)
		}
		buy := func() {
			if _, err := buyer.Buy(t.Context(), newRequest(), lines); err != nil {
				t.Fatal(err)
			}
		}
		buy() // prepares the statements
		var trips atomic.Int64
		p.OnRequest(func(b []byte, _, _ net.Conn) bool {
			if n := len(b); n >= 5 && string(b[n-5:]) == "S\x00\x00\x00\x04" { // Sync
				trips.Add(1)
			}
			return true
		})
		buy()
		if got := int(trips.Load()); got != want {
			t.Errorf("%s: %d round trips, want %d", strategy, got, want)
		}
	}
}
