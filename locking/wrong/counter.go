// SPDX-License-Identifier: MIT

package wrong

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Incr takes a fence from a counter of its own. A counter that is lost with the data of its server begins again at 1, below
// the fences that the resource has seen.
func Incr(ctx context.Context, server *redis.Client, counter string) (fence int64, err error) {
	return server.Incr(ctx, counter).Result()
}

// IncrThenSet takes the fence with one command and the lock with another. Between them another holder may come and go, with
// a greater fence.
func IncrThenSet(ctx context.Context, server *redis.Client, key, counter, owner string, ttl time.Duration) (fence int64, taken bool, err error) {
	if fence, err = Incr(ctx, server, counter); err != nil {
		return 0, false, err
	}
	taken, err = server.SetNX(ctx, key, owner, ttl).Result()
	return fence, taken, err
}
