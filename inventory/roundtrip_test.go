package inventory_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

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
		cfg.Pool = pingless(t, p.url)
		buyer, _ := s.another(cfg)
		var lines []inventory.Line
		for _, sku := range []string{"A", "B", "C"} {
			s.stock(sku, 5)
			lines = append(lines, one(sku)...)
		}
		buy := func() {
			if _, err := buyer.Buy(t.Context(), ask(), lines); err != nil {
				t.Fatal(err)
			}
		}
		buy() // prepares the statements
		before := p.roundTrips()
		buy()
		if got := p.roundTrips() - before; got != want {
			t.Errorf("%s: %d round trips, want %d", strategy, got, want)
		}
	}
}

// pingless is a pool that does not try connections which were idle for a second:
// on a busy machine that would be one round trip more, now and then.
func pingless(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := inventory.PoolConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
