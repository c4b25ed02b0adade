package redislock

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// NewFair makes a fair lock: first come, first served, among all processes.
//
// A fair lock and a Store do not exclude each other, whatever their Options. The writers of
// an RW and a fair lock with the same Options do.
func NewFair(client redis.UniversalClient, ttl time.Duration, o Options) (*QueueStore, error) {
	return newQueueStore(client, ttl, o, exclusive, "queue", readersMax)
}
