package redislock

import (
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"
)

// NewSemaphore makes a semaphore: each key has a number of permits, which are granted in
// order of arrival. A lease is one permit. It expires by itself, by the server's clock: a
// dead holder takes no other permit with it, and no client's clock matters.
//
// All processes must name the same number of permits. A lease has no Fence: several are
// valid at once.
func NewSemaphore(client redis.UniversalClient, ttl time.Duration, permits int, o Options) (*QueueStore, error) {
	if permits < 1 || permits > math.MaxInt32 {
		return nil, fmt.Errorf("redislock: a semaphore of %d permits: want 1 or more", permits)
	}
	return newQueueStore(client, ttl, o, shared, "permits", permits)
}
