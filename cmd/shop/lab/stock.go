// SPDX-License-Identifier: MIT

package lab

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"shop/inventory"
	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/redislock"
)

// stockFlow sells one product.
var stockFlow = &flow{
	Name: "inventory", Title: "A race for stock",
	About: "Two strategies sell the same stock to the same buyers at the same time, each on two replicas that are started for the race, with real PostgreSQL and Redis. The buyers want three times the stock. At the end PostgreSQL counts what was sold.",
	Size:  "Stock",
	Words: map[string]string{"done": "sold", "refused": "out of stock", "paused": "the purchase that it stopped at had read the stock", "what": "units sold, and stock left, from the tables"},
	Figures: []Figure{
		{Key: "sold", Label: "sold", Curve: "bad"}, {Key: "left", Label: "left", Curve: "good"}, {Key: "opening", Label: "opening stock"},
	},
	Limit:      "opening",
	Strategies: strategies(inventory.Strategies()),
	Faults: map[Fault]string{
		Pause: "Twice, the replica of a holder stops for longer than the lock's TTL, after it has read the stock. A holder that looks at its lease before COMMIT writes nothing.",
		Drop:  "For about every fourth purchase, the key of its lock is deleted in Redis after it has read the stock. The holder is not told. Without a lock in Redis there is nothing to drop.",
		Cut:   "Twice, all connections to Redis are cut, and refused for a second, as if Redis were killed. Without a lock in Redis there is nothing to cut.",
		Kill:  "Once, a purchase that has read the stock kills the Redis server, for both strategies, and goes on when the server is back. A server that keeps no data comes back without the locks, and their holders are not told at once.",
	},
	Default:    Settings{Strategies: []string{"naive", "redis+row"}, Clients: 32, Size: 100, Fault: NoFault},
	Invariants: inventory.Invariants.Invariants,
	requests:   3, moments: []moment{read}, dropEvery: 4,
	open: openStock,
}

const (
	redisTTL = 1500 * time.Millisecond
	killTTL  = 3 * time.Second // a holder renews its lease, and learns that it is lost, after a third of it
)

// stock is the scene of stockFlow.
type stock struct {
	site
	lane *lane
	url  string
	sku  string
	pool *pgxpool.Pool // of the audit
}

func openStock(ctx context.Context, p site, l *lane) (_ scene, err error) {
	if p.RedisURL == "" {
		return nil, fmt.Errorf("%w: for Redis set --redis-url or SHOP_REDIS_URL", errNotConfigured)
	}
	s := &stock{site: p, lane: l, sku: "race-" + l.strategy.Name}
	l.pauseTime = redisTTL + 400*time.Millisecond
	if s.url, err = makeTables(ctx, p, inventory.Migrate); err != nil {
		return nil, err
	}
	if s.pool, err = openPool(ctx, s.url, 1, nil); err != nil {
		return nil, err
	}
	l.onClose(s.pool.Close)
	service, err := inventory.New(inventory.Config{Pool: s.pool, Strategy: "row"})
	if err != nil {
		return nil, err
	}
	_, err = service.AddProduct(ctx, inventory.Product{SKU: s.sku, Name: "Race", Price: 100, Currency: "EUR", Stock: int64(l.settings.Size)})
	return s, err
}

func (s *stock) replica(ctx context.Context, r *replica) (act, error) {
	pool, err := openPool(ctx, s.url, connsMax, nil)
	if err != nil {
		return nil, err
	}
	s.lane.onClose(pool.Close)
	ttl := redisTTL
	if s.lane.settings.Fault == Kill {
		ttl = killTTL
	}
	client, err := redislock.Connect(s.RedisURL, ttl)
	if err != nil {
		return nil, err
	}
	s.lane.onClose(func() { _ = client.Close() })
	client.AddHook(&r.locks)
	prefix := s.LockPrefix + s.name
	store, err := redislock.New(client, ttl, redislock.Options{Prefix: prefix})
	if err != nil {
		return nil, err
	}
	s.lane.onClose(store.Close)
	var locks locking.Store = queued{traced{store, r}, store}
	if s.lane.settings.Fault == Drop {
		locks = traced{store, r} // its waiters poll, so the next one comes soon after a lock is gone
	}
	service, err := inventory.New(inventory.Config{
		Pool: pool, Locks: locks, Lock: locking.Options{Observer: s.lane.record.observe},
		Strategy: s.lane.strategy.Name, Encode: encode[inventory.Order], Log: s.Log, Count: counts[inventory.EventKind](s.lane.record),
		Failpoint: func(ctx context.Context, step inventory.Step, _ string) { r.step(ctx, string(step)) },
	})
	if err != nil {
		return nil, err
	}
	s.lane.onClose(service.Close)
	r.drop = func(ctx context.Context) bool {
		found := client.Scan(ctx, 0, prefix+"{*}lock:product/"+s.sku, 10_000).Iterator()
		for found.Next(ctx) {
			if deleted, err := client.Del(ctx, found.Val()).Result(); err == nil && deleted > 0 {
				return true
			}
		}
		return false
	}
	return func(ctx context.Context, req idempotency.Request, _ int) (idempotency.Reply, error) {
		return service.Buy(ctx, req, []inventory.Line{{SKU: s.sku, Quantity: 1}})
	}, nil
}

// count counts what was sold. One statement sees one snapshot.
func (s *stock) count(ctx context.Context) (Figures, error) {
	var opening, sold, left int64
	err := s.pool.QueryRow(ctx, `
		SELECT (SELECT COALESCE(sum(quantity), 0) FROM stock_movements WHERE sku = $1 AND kind = 'opening'),
		       (SELECT COALESCE(sum(l.quantity), 0)
		        FROM order_lines l
		        JOIN orders o ON o.id = l.order_id
		        WHERE l.sku = $1 AND o.status = 'confirmed'),
		       (SELECT stock FROM products_with_slots WHERE sku = $1)`, s.sku).Scan(&opening, &sold, &left)
	return Figures{"opening": opening, "sold": sold, "left": left}, err
}

func (s *stock) audit(ctx context.Context, f Figures) (map[string]int64, string, error) {
	broken, err := inventory.Audit(ctx, s.pool)
	sold, over := fmt.Sprintf("sold %d of %d", f["sold"], f["opening"]), f["sold"]-f["opening"]
	switch {
	case over == 1:
		sold += ": 1 customer will be disappointed"
	case over > 1:
		sold += fmt.Sprintf(": %d customers will be disappointed", over)
	case f["left"] != -over:
		sold += fmt.Sprintf(", but the stock says that %d are left: updates were lost", f["left"])
	case over < 0:
		sold += " when the time was over, and no unit twice"
	}
	return broken, sold, err
}
