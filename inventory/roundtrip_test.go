package inventory_test

import (
	"testing"

	"shop/inventory"
)

// What a purchase costs in round trips to PostgreSQL, as a proxy counts them,
// the look at the key included. The row is locked for the last one only.
func TestBuy_RoundTrips(t *testing.T) {
	t.Parallel()
	for strategy, want := range map[string]int{
		"naive": 3, "redis-only": 3, "redis+row": 3, "row": 3, "atomic": 3,
		"optimistic": 4, "serializable": 3, "advisory": 3, "advisory-try": 3,
	} {
		s := openWithRedis(t, inventory.Config{Strategy: strategy})
		p := newProxy(t, s.url)
		cfg := s.cfg
		cfg.Pool = newPool(t, p.url)
		buyer, _ := s.another(cfg)
		var lines []inventory.Line
		for _, sku := range []string{"A", "B", "C"} {
			s.stock(sku, 5)
			lines = append(lines, one(sku)...)
		}
		for range 2 { // the first prepares the statements
			before := p.roundTrips()
			if _, err := buyer.Buy(t.Context(), ask(), lines); err != nil {
				t.Fatal(err)
			}
			if got := p.roundTrips() - before; got != want && s.left("A") == 3 {
				t.Errorf("%s: %d round trips, want %d", strategy, got, want)
			}
		}
	}
}
