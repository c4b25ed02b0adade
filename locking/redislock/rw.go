package redislock

import (
	"math"
	"time"

	"github.com/redis/go-redis/v9"
)

// RW is a read-write lock: a key has one writer, or any number of readers. Both wait in one
// queue in order of arrival, so neither starves: a reader that comes after a waiting writer
// waits behind it, and readers next to each other in the queue hold the key together.
//
// A lease of a reader has no Fence: a guard refuses a write under it. A holder must not
// request its own keys again: a reader behind a writer that waits for that same reader
// waits until one of the two gives up.
type RW struct {
	Read, Write *QueueStore
}

// readersMax is how many readers may hold a key at once.
const readersMax = math.MaxInt32

// NewRW makes a read-write lock whose leases last ttl; see New.
func NewRW(client redis.UniversalClient, ttl time.Duration, o Options) (*RW, error) {
	write, err := newQueueStore(client, ttl, o, exclusive, "queue", readersMax)
	if err != nil {
		return nil, err
	}
	read := *write
	read.mode = shared
	return &RW{Read: &read, Write: write}, nil
}

// Close closes both sides, as QueueStore.Close of one of them does.
func (rw *RW) Close() { rw.Write.Close() }
