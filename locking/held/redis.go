// SPDX-License-Identifier: MIT

package held

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/redislock"
)

// Redis has the locks of redislock with these Options. List reads the server's keys in parts (SCAN).
type Redis struct {
	Client  redis.UniversalClient
	Options redislock.Options
}

func (s Redis) prefix() string { return cmp.Or(s.Options.Prefix, "lock") }

// List returns the locks in the order of their keys.
func (s Redis) List(ctx context.Context) (locks []Lock, err error) {
	var mu sync.Mutex
	scan := func(ctx context.Context, node redis.UniversalClient) error {
		names := node.Scan(ctx, 0, s.Pattern(), 1000).Iterator()
		for names.Next(ctx) {
			lock, held, err := s.read(ctx, names.Val())
			if err != nil {
				return err
			}
			if held {
				mu.Lock()
				locks = append(locks, lock)
				mu.Unlock()
			}
		}
		return names.Err()
	}
	if cluster, ok := s.Client.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return scan(ctx, node) })
	} else {
		err = scan(ctx, s.Client)
	}
	if err != nil {
		return nil, fmt.Errorf("held: list the locks in Redis: %w", err)
	}
	return ordered(locks), nil
}

// read returns a lock, unless it has ended.
func (s Redis) read(ctx context.Context, name string) (lock Lock, held bool, err error) {
	var value *redis.StringCmd
	var left *redis.DurationCmd
	var waits *redis.IntCmd
	_, err = s.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		value, left, waits = p.Get(ctx, name), p.PTTL(ctx, name), p.Exists(ctx, strings.Replace(name, "}lock:", "}wait:", 1))
		return nil
	})
	if errors.Is(err, redis.Nil) || err == nil && left.Val() == -2 { // it has ended meanwhile
		return lock, false, nil
	}
	fence, owner, _ := strings.Cut(value.Val(), ":")
	n, _ := strconv.ParseInt(fence, 10, 64)
	_, key, _ := strings.Cut(name, "}lock:")
	return Lock{Key: key, Owner: owner, Fence: locking.Fence(n), Left: left.Val(), Waiters: int(waits.Val())}, err == nil, err
}

// End deletes the lock. Waiters find that at their next request, in a quarter of a second.
func (s Redis) End(ctx context.Context, key string) (ended bool, err error) {
	o := s.Options
	o.Prefix = s.prefix()
	n, err := s.Client.Del(ctx, o.Scope(key)+"lock:"+key).Result()
	if err != nil {
		return false, fmt.Errorf("held: end %q in Redis: %w", key, err)
	}
	return n > 0, nil
}

// Pattern matches the names of the locks (PREFIX{TAG}lock:KEY), and not those of fences and waiters, for SCAN.
func (s Redis) Pattern() string {
	text := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
	return text.Replace(s.prefix()) + "{*}lock:*"
}

func ordered(locks []Lock) []Lock {
	slices.SortFunc(locks, func(a, b Lock) int { return strings.Compare(a.Key, b.Key) })
	return slices.CompactFunc(locks, func(a, b Lock) bool { return a.Key == b.Key }) // SCAN may name a key twice
}
