// SPDX-License-Identifier: MIT

package redislock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/driver"
)

//go:embed guard.lua
var guardLua string

// Guard is a script that reads and writes what a lock protects, after a check of the lock's fence.
// Redis has no transaction that a check could be a part of, so the check and the write are one script.
type Guard struct{ script *redis.Script }

// NewGuard makes a Guard of a script in Lua, with KEYS and ARGV of its own. Reads on which the write depends
// belong into the script: what a client has read before may be older than the guard.
func NewGuard(script string) *Guard { return &Guard{redis.NewScript(guardLua + script)} }

// Run runs the script unless it has run with a newer fence for this guard; then it returns
// locking.ErrStale, and nothing was written. An equal fence passes.
//
// The guard is the name of a Redis key, one for each resource, that holds the greatest fence. It
// must not expire, or be evicted, before what it guards. In a Cluster it has the hash tag of keys.
//
// After locking.ErrOutcomeUnknown the script may have run. Run sends it once: a script that is not idempotent must
// not run twice. A Scripter that is not a redis.UniversalClient must not repeat requests either.
func (g *Guard) Run(ctx context.Context, c redis.Scripter, guard string, fence locking.Fence, keys []string, args ...any) (any, error) {
	if fence <= 0 {
		return nil, fmt.Errorf("%w: fence %d of %q", locking.ErrUnfenced, fence, guard)
	}
	if err := locking.CheckKeys([]string{guard}); err != nil {
		return nil, err
	}
	if client, ok := c.(redis.UniversalClient); ok {
		c = once{client}
	}
	result, err := g.script.Run(ctx, c, append(keys[:len(keys):len(keys)], guard), append(args[:len(args):len(args)], int64(fence))...).Result()
	var reply redis.Error
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case redis.HasErrorPrefix(err, "STALE"):
		err = fmt.Errorf("%w: %w", locking.ErrStale, err)
	case err != nil && !errors.As(err, &reply) && !unsent(err):
		err = driver.NoAnswer(ctx, err)
	}
	if err != nil {
		return nil, fmt.Errorf("redislock: guard %q: %w", guard, err)
	}
	return result, nil
}
