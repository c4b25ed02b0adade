// SPDX-License-Identifier: MIT

package redislock

import (
	"context"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest/faulty"
)

// The stores in this file are wrong on purpose: the contract has to refuse them.

// edited returns a wrong variant of a script.
func edited(t testing.TB, source, from, to string) *redis.Script {
	t.Helper()
	return redis.NewScript(faulty.Edited(t, source, from, to))
}

func renames(encode func(string) string) func(locking.Store) locking.Store {
	return func(s locking.Store) locking.Store { return faulty.Renames(s, encode) }
}

// queue stands in front of stores and serves the waiters of this process in the order
// that pick chooses. If pick returns 0, the order is FIFO.
type queue struct {
	pick    func(waiting int) int
	mu      sync.Mutex
	waiting []chan struct{}
}

func (q *queue) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// queued is a locking.Waiter.
type queued struct {
	locking.Store
	queue *queue
}

func (s queued) Acquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	turn := make(chan struct{})
	s.queue.mu.Lock()
	s.queue.waiting = append(s.queue.waiting, turn)
	s.queue.mu.Unlock()
	<-turn
	return s.TryAcquire(ctx, keys...)
}

func (s queued) Release(ctx context.Context, l locking.Lease) error {
	err := s.Store.Release(ctx, l)
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.waiting); n > 0 {
		i := q.pick(n)
		close(q.waiting[i])
		q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
	}
	return err
}
