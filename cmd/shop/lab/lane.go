package lab

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/inventory"
	"shop/locking"
	"shop/locking/idempotency"
)

const (
	replicaCount = 2
	demand       = 3                      // units that are wanted, for each one in stock
	waitMean     = 250 * time.Millisecond // of a buyer before each purchase
	workMean     = 2 * time.Millisecond   // of a purchase between its reading and its writing
	lockTTL      = 1500 * time.Millisecond
	pauseTime    = 1900 * time.Millisecond // of a replica: longer than the TTL
	pausesMax    = 2
	dropEvery    = 4                     // one of so many purchases loses its lock
	dropLead     = 25 * time.Millisecond // from the loss to its writing: longer than the longest pause of a waiter
)

// lane is one strategy in a race, with everything that it uses.
type lane struct {
	settings Settings
	strategy inventory.Strategy
	sku      string
	pool     *pgxpool.Pool // of the audit
	replicas []*replica
	record   *record

	mu       sync.Mutex
	random   *rand.Rand
	passes   int   // purchases that have read the stock
	pausesAt []int // passes
}

// openLane opens the replicas of a strategy on its own tables, and adds the product.
func openLane(ctx context.Context, cfg Config, s Settings, strategy, laneURL, name string) (_ *lane, err error) {
	found, _ := find(strategy)
	l := &lane{settings: s, strategy: found, sku: "race-" + strategy, record: newRecord(time.Now()), random: rand.New(rand.NewPCG(uint64(s.Seed), 0))}
	for at := 0; len(l.pausesAt) < pausesMax; {
		at += 1 + l.random.IntN(s.Stock/pausesMax+1)
		l.pausesAt = append(l.pausesAt, at)
	}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.pool, err = openPool(ctx, laneURL, 1); err != nil {
		return nil, err
	}
	for n := range replicaCount {
		r, err := openReplica(ctx, cfg, l, laneURL, cfg.LockPrefix+name, n+1)
		if err != nil {
			return nil, err
		}
		l.replicas = append(l.replicas, r)
	}
	_, err = l.replicas[0].service.AddProduct(ctx, inventory.Product{SKU: l.sku, Name: "Race", Price: 100, Currency: "EUR", Stock: int64(s.Stock)})
	return l, err
}

func (l *lane) close() {
	for _, r := range l.replicas {
		r.close()
	}
	if l.pool != nil {
		l.pool.Close()
	}
}

// run lets all buyers buy, until nothing is wanted any more or ctx ends.
func (l *lane) run(ctx context.Context) {
	var buyers sync.WaitGroup
	for n := range l.settings.Clients {
		buyers.Go(func() { l.buyer(ctx, n) })
	}
	buyers.Wait()
}

// buyer is one client: its seed decides when it buys.
func (l *lane) buyer(ctx context.Context, n int) {
	random := rand.New(rand.NewPCG(uint64(l.settings.Seed), uint64(n)+1))
	client := uuid.New()
	for i := n; i < demand*l.settings.Stock; i += l.settings.Clients {
		sleep(ctx, exponential(random, waitMean))
		if ctx.Err() != nil || time.Since(l.record.start) > buyTime {
			return
		}
		key := fmt.Sprintf("race-%d", i)
		l.buy(ctx, l.replicas[n%replicaCount], n+1, inventory.Request{Client: client, Key: key, Fingerprint: sha256.Sum256([]byte(key))})
	}
}

// purchaseKey is the context key of the number of a purchase.
type purchaseKey struct{}

// buy buys one unit, and sends the same key again until there is a final answer.
func (l *lane) buy(ctx context.Context, r *replica, buyer int, req inventory.Request) {
	begin := time.Now()
	for ctx.Err() == nil {
		p := l.record.begin("asked", r.number, buyer)
		reply, err := r.service.BuyWith(context.WithValue(ctx, purchaseKey{}, p), l.strategy.Name, req, []inventory.Line{{SKU: l.sku, Quantity: 1}})
		if err == nil {
			l.record.add(Event{Purchase: p, Kind: map[int]string{statusSold: "sold", statusRefused: "refused"}[reply.Status]})
			l.record.answered(time.Since(begin))
			return
		}
		kind := "failed"
		if errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, idempotency.ErrInProgress) {
			kind = "unknown"
		}
		l.record.add(Event{Purchase: p, Kind: kind, Note: err.Error()})
		sleep(ctx, 10*time.Millisecond)
	}
}

// The statuses that are stored with the keys, as those of the shop are.
const (
	statusSold    = 201
	statusRefused = 409
)

func encode(_ inventory.Order, refusal error) (inventory.Reply, error) {
	if refusal != nil {
		return inventory.Reply{Status: statusRefused}, nil
	}
	return inventory.Reply{Status: statusSold}, nil
}

func (l *lane) usesRedis() bool { return slices.Contains(l.strategy.Stores, "redis") }

// afterRead is called by each purchase between its reading and its writing.
func (l *lane) afterRead(ctx context.Context, r *replica, purchase int) {
	l.record.add(Event{Purchase: purchase, Kind: "read"})
	l.mu.Lock()
	l.passes++
	work := exponential(l.random, workMean)
	drop := l.random.IntN(dropEvery) == 0
	pause := slices.Contains(l.pausesAt, l.passes)
	l.mu.Unlock()
	switch {
	case l.settings.Fault == Pause && pause:
		r.paused.Store(time.Now().Add(pauseTime).UnixNano())
		l.record.add(Event{Purchase: purchase, Kind: "paused"})
		r.wait(context.WithoutCancel(ctx)) // a stopped process is not told that its lease is lost
		l.record.add(Event{Purchase: purchase, Kind: "resumed"})
	case l.settings.Fault == Drop && drop && r.drop(ctx):
		l.record.add(Event{Purchase: purchase, Kind: "dropped"})
		work += dropLead
	}
	sleep(ctx, work)
}

func exponential(random *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(random.ExpFloat64() * float64(mean))
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// newest is the last purchase of a replica that took the lock for others: a batch of combined.
type newest struct{ atomic.Int64 }

// of returns the purchase that ctx belongs to.
func (n *newest) of(ctx context.Context) int {
	if p, ok := ctx.Value(purchaseKey{}).(int); ok {
		return p
	}
	return int(n.Load())
}

// traced is the lock store of a replica.
type traced struct {
	locking.Store
	*replica
}

// TryAcquire notes which purchase got the lease.
func (t traced) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	t.wait(ctx)
	lease, err := t.Store.TryAcquire(ctx, keys...)
	if err == nil {
		p, ok := ctx.Value(purchaseKey{}).(int)
		if !ok {
			p = t.lane.record.begin("", t.number, 0)
			t.batch.Store(int64(p))
		}
		t.lane.record.owns(lease.Owner, p)
	}
	return lease, err
}

// Renew sends nothing while the replica is paused.
func (t traced) Renew(ctx context.Context, l locking.Lease) (locking.Lease, error) {
	t.wait(ctx)
	if ctx.Err() != nil {
		return l, context.Cause(ctx)
	}
	return t.Store.Renew(ctx, l)
}
