// SPDX-License-Identifier: MIT

// Package redisfault deletes locks in Redis while they are held.
package redisfault

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/loadtest/fault"
	"shop/locking/held"
	"shop/locking/redislock"
)

// LockLost repeatedly deletes all locks with a prefix, as if every holder had been paused
// beyond its TTL, or as if a failover had lost the locks. The holder of a deleted lock
// continues as if it still held the lock, while the next holder acquires it.
type LockLost struct {
	Client redis.UniversalClient
	Prefix string        // of the replicas' locks
	Every  time.Duration // many times a second
}

// Inject counts only deletions that hit a lock. It does not delete fence counters.
func (l LockLost) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	events, err := fault.Repeat(ctx, over, l.Every, "locks deleted", "locks_deleted", l.sweep)
	for i := range events {
		events[i].Steady = true // Redis answers: no request need wait
	}
	return events, err
}

func (l LockLost) sweep(ctx context.Context) (hits int64, err error) {
	keys, err := Leftovers(ctx, l.Client, l.Prefix)
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	return l.Client.Del(ctx, keys...).Result()
}

// Leftovers lists the locks with a prefix, without the fence counters, which are kept.
func Leftovers(ctx context.Context, client redis.UniversalClient, prefix string) (left []string, err error) {
	keys := client.Scan(ctx, 0, lockPattern(prefix), 1000).Iterator()
	for keys.Next(ctx) {
		left = append(left, keys.Val())
	}
	return left, keys.Err()
}

// lockPattern matches the locks of redislock (PREFIX{TAG}lock:KEY), but not its
// fence counters.
func lockPattern(prefix string) string {
	return held.Redis{Options: redislock.Options{Prefix: prefix}}.Pattern()
}
