package locking

import (
	"context"
	"time"
)

// Fence is a number that a Store hands out with each grant, greater than every
// earlier Fence of each of the lease's keys. 0 means that the store cannot fence.
type Fence int64

// Lease says what was granted. It is plain data: it may be copied, logged and
// sent, and holding one proves nothing after Until.
type Lease struct {
	Keys  []string  // usually one; several are held all or none
	Owner string    // random for each acquisition
	Fence Fence     // 0: the store cannot fence
	Until time.Time // do not trust the lease after this (monotonic); zero: it holds as long as its connection does
}

// Store is a lock service. A Store is made with its TTL (redislock.New(client, ttl, …)).
// It is safe for concurrent use. Each method returns when its ctx ends.
//
// Keys are checked and put in order with SortedKeys. Until counts from before the
// request that last set the TTL at the server, less a margin.
type Store interface {
	// TryAcquire takes all keys or none. ErrBusy: someone else has one of them.
	TryAcquire(ctx context.Context, keys ...string) (Lease, error)
	// Renew sets the TTL anew. ErrLost is final, and a lost lease is never taken
	// again; any other error may be retried. Only Until of the lease changes.
	Renew(ctx context.Context, l Lease) (Lease, error)
	// Release gives the keys back. ErrLost: the lease was not ours any more.
	Release(ctx context.Context, l Lease) error
}

// Waiter is a Store that waits better than by asking again (queue, watch, blocking
// call). When ctx ends, the error matches ctx.Err(), and ErrBusy too if it was
// in the queue; and no trace of it stays there.
type Waiter interface {
	Acquire(ctx context.Context, keys ...string) (Lease, error)
}
