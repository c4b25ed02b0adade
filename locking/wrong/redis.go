// SPDX-License-Identifier: MIT

package wrong

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// SetNX takes key without an expiry. If the holder dies, nothing frees the key.
func SetNX(ctx context.Context, server *redis.Client, key, owner string) (taken bool, err error) {
	return server.SetNX(ctx, key, owner, 0).Result()
}

// SetNXThenExpire sets the expiry with a second command. If the holder dies before it,
// nothing frees the key.
func SetNXThenExpire(ctx context.Context, server *redis.Client, key, owner string, ttl time.Duration) (taken bool, err error) {
	if taken, err = SetNX(ctx, server, key, owner); err != nil || !taken {
		return false, err
	}
	return true, server.PExpire(ctx, key, ttl).Err()
}

// SetNXOrHeal is SetNXThenExpire that sets a missing expiry of another's lock as well. That
// holder may be alive, and just about to set its own.
func SetNXOrHeal(ctx context.Context, server *redis.Client, key, owner string, ttl time.Duration) (taken bool, err error) {
	if taken, err = SetNXThenExpire(ctx, server, key, owner, ttl); err != nil || taken {
		return taken, err
	}
	left, err := server.PTTL(ctx, key).Result()
	if err == nil && left == -1 {
		err = server.PExpire(ctx, key, ttl).Err()
	}
	return false, err
}

// Del releases key, even if another owner holds it by now.
func Del(ctx context.Context, server *redis.Client, key string) error {
	return server.Del(ctx, key).Err()
}

// GetThenDel releases key if owner holds it at the time of GET. At the time of DEL another
// may hold it.
func GetThenDel(ctx context.Context, server *redis.Client, key, owner string) error {
	holder, err := server.Get(ctx, key).Result()
	if err != nil || holder != owner {
		return err
	}
	return server.Del(ctx, key).Err()
}

// TakeOver takes key, whose value is the deadline of its holder in the server's time. A
// deadline that is past is deleted; by then it may be that of another holder.
func TakeOver(ctx context.Context, server *redis.Client, key string, ttl time.Duration) (taken bool, err error) {
	now, err := server.Time(ctx).Result()
	if err != nil {
		return false, err
	}
	deadline, err := server.Get(ctx, key).Int64()
	switch {
	case errors.Is(err, redis.Nil):
	case err != nil || now.UnixMilli() < deadline:
		return false, err
	default:
		if err := server.Del(ctx, key).Err(); err != nil {
			return false, err
		}
	}
	return server.SetNX(ctx, key, strconv.FormatInt(now.Add(ttl).UnixMilli(), 10), 0).Result()
}

// WallClock is a lock whose holder counts by the wall clock, as a deadline that was formatted,
// stored or sent does.
type WallClock struct {
	Server *redis.Client
	TTL    time.Duration
	Now    func() time.Time // the wall clock
}

// Acquire takes key until deadline.
func (w WallClock) Acquire(ctx context.Context, key, owner string) (deadline time.Time, taken bool, err error) {
	deadline = w.Now().Round(0).Add(w.TTL)
	taken, err = w.Server.SetNX(ctx, key, owner, w.TTL).Result()
	return deadline, taken, err
}

// Trusts reports whether the holder still relies on the lock.
func (w WallClock) Trusts(deadline time.Time) bool { return w.Now().Before(deadline) }
