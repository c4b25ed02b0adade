package redislock

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
)

// What is below is wrong on purpose: stores that the contract has to refuse.

// edited is a script of ours with one piece replaced. The piece has to be there.
func edited(t testing.TB, source, from, to string) *redis.Script {
	t.Helper()
	if strings.Count(source, from) != 1 {
		t.Fatalf("%q is not there exactly once: this variant changes nothing, or too much", from)
	}
	return redis.NewScript(strings.Replace(source, from, to, 1))
}

// anyStore makes a variant of this Store from one of any store.
func anyStore(broken func(locking.Store) locking.Store) func(*Store) locking.Store {
	return func(s *Store) locking.Store { return broken(s) }
}

func grantsHeldKeys(s *Store) locking.Store { return locktest.GrantsHeldKeys(s, s.ttl) }

func trustsFromTheAnswer(s *Store) locking.Store { return locktest.TrustsFromTheAnswer(s, s.trust) }

func renames(encode func(string) string) func(*Store) locking.Store {
	return func(s *Store) locking.Store { return locktest.Renames(s, encode) }
}

// takesOneByOne leaves what it has when the next key is busy.
func takesOneByOne(s *Store) locking.Store {
	return locktest.Twisted{Store: s, Try: func(ctx context.Context, keys []string) (all locking.Lease, err error) {
		for _, k := range keys {
			if all, err = s.TryAcquire(ctx, k); err != nil {
				return locking.Lease{}, err
			}
		}
		all.Keys = keys
		return all, nil
	}}
}

// queue stands in front of stores and serves those who wait in an order of its
// own. With pick = first it is a FIFO, in this process.
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
	*Store
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
