package lab

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"shop/inventory"
	"shop/locking"
	"shop/locking/redislock"
)

// replica is one Service of a lane, with a pool and a lock store of its own.
type replica struct {
	number  int
	lane    *lane
	pool    *pgxpool.Pool
	client  *redis.Client
	prefix  string
	locks   *redislock.Store
	service *inventory.Service
	paused  atomic.Int64 // until this time, in nanoseconds since 1970
	batch   newest
}

// connsMax is how many connections a replica has: each purchase that waits for a row takes one.
const connsMax = 12

func openReplica(ctx context.Context, cfg Config, l *lane, laneURL, prefix string, number int) (_ *replica, err error) {
	r := &replica{number: number, lane: l, prefix: prefix}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.pool, err = openPool(ctx, laneURL, connsMax); err != nil {
		return nil, err
	}
	if r.client, err = redislock.Connect(cfg.RedisURL, lockTTL); err != nil {
		return nil, err
	}
	if r.locks, err = redislock.New(r.client, lockTTL, redislock.Options{Prefix: prefix}); err != nil {
		return nil, err
	}
	r.service, err = inventory.New(inventory.Config{
		Pool: r.pool, Locks: traced{r.locks, r}, Lock: locking.Options{Observer: l.record.observe},
		Strategy: l.strategy.Name, Encode: encode, Log: cfg.Log, Count: l.record.count, Failpoint: r.step,
	})
	return r, err
}

// close closes everything in the order of use.
func (r *replica) close() {
	if r.service != nil {
		r.service.Close()
	}
	if r.locks != nil {
		r.locks.Close()
	}
	if r.client != nil {
		_ = r.client.Close()
	}
	if r.pool != nil {
		r.pool.Close()
	}
}

// step is the inventory.Config.Failpoint of the replica.
func (r *replica) step(ctx context.Context, step inventory.Step, _ string) {
	r.wait(ctx)
	switch step {
	case inventory.AfterGuard:
		r.lane.afterRead(ctx, r, r.batch.of(ctx))
	case inventory.AfterCommit:
		r.lane.record.add(Event{Purchase: r.batch.of(ctx), Kind: "committed"})
	}
}

// wait returns when the replica is not paused, or ctx has ended.
func (r *replica) wait(ctx context.Context) {
	if left := time.Until(time.Unix(0, r.paused.Load())); left > 0 {
		sleep(ctx, left)
	}
}

// drop deletes the key of the lock in Redis, as an operator or an eviction may. It reports whether there was one.
func (r *replica) drop(ctx context.Context) bool {
	found := r.client.Scan(ctx, 0, r.prefix+"{*}lock:product/"+r.lane.sku, 10_000).Iterator()
	for found.Next(ctx) {
		if deleted, err := r.client.Del(ctx, found.Val()).Result(); err == nil && deleted > 0 {
			return true
		}
	}
	return false
}
