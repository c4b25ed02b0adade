// SPDX-License-Identifier: MIT

package wrong

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Process is a lock whose owner is one for the whole process: a constant LOCK_VALUE, or the host's name. The release compares
// the owner, as it should. But a goroutine whose lock has expired compares itself with another one of its own process.
type Process struct {
	Server *redis.Client
	Owner  string
	TTL    time.Duration
}

// Acquire takes key.
func (p Process) Acquire(ctx context.Context, key string) (taken bool, err error) {
	return p.Server.SetNX(ctx, key, p.Owner, p.TTL).Result()
}

var compareAndDelete = redis.NewScript(`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`)

// Release frees key, if this process has it.
func (p Process) Release(ctx context.Context, key string) (freed bool, err error) {
	return compareAndDelete.Run(ctx, p.Server, []string{key}, p.Owner).Bool()
}

// WithLease does work under a lock of a fixed duration, which nothing renews: in Redisson, tryLock with a lease time has no
// watchdog. Work that takes longer goes on without the lock.
func WithLease(ctx context.Context, server *redis.Client, key, owner string, lease time.Duration, work func()) (taken bool, err error) {
	p := Process{server, owner, lease}
	if taken, err = p.Acquire(ctx, key); err != nil || !taken {
		return false, err
	}
	work()
	_, err = p.Release(ctx, key)
	return true, err
}

// JobOnce runs a job, unless it is running: the flag of the job is deleted at its end. A call that comes after that runs the
// job again, although it was meant to run once.
func JobOnce(ctx context.Context, server *redis.Client, job string, run func()) (ran bool, err error) {
	if ran, err = server.SetNX(ctx, job, "running", time.Hour).Result(); err != nil || !ran {
		return false, err
	}
	run()
	return true, server.Del(ctx, job).Err()
}
