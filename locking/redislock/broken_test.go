package redislock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
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

// twisted is a Store of which some verbs are replaced.
type twisted struct {
	*Store
	try     func(context.Context, []string) (locking.Lease, error)
	renew   func(context.Context, locking.Lease) (locking.Lease, error)
	release func(context.Context, locking.Lease) error
}

func (s twisted) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	if s.try == nil {
		return s.Store.TryAcquire(ctx, keys...)
	}
	return s.try(ctx, keys)
}

func (s twisted) Renew(ctx context.Context, l locking.Lease) (locking.Lease, error) {
	if s.renew == nil {
		return s.Store.Renew(ctx, l)
	}
	return s.renew(ctx, l)
}

func (s twisted) Release(ctx context.Context, l locking.Lease) error {
	if s.release == nil {
		return s.Store.Release(ctx, l)
	}
	return s.release(ctx, l)
}

// grantsHeldKeys grants every request.
func grantsHeldKeys(s *Store) locking.Store {
	return twisted{Store: s, try: func(_ context.Context, keys []string) (locking.Lease, error) {
		return locking.Lease{Keys: keys, Owner: "me", Fence: 1, Until: time.Now().Add(s.ttl)}, nil
	}}
}

// trustsFromTheAnswer counts Until from when the answer came.
func trustsFromTheAnswer(s *Store) locking.Store {
	later := func(l locking.Lease, err error) (locking.Lease, error) {
		l.Until = time.Now().Add(s.trust)
		return l, err
	}
	return twisted{
		Store: s,
		try: func(ctx context.Context, keys []string) (locking.Lease, error) {
			return later(s.TryAcquire(ctx, keys...))
		},
		renew: func(ctx context.Context, l locking.Lease) (locking.Lease, error) { return later(s.Renew(ctx, l)) },
	}
}

// trustsTheWallClock gives an Until that a change of the clock changes.
func trustsTheWallClock(s *Store) locking.Store {
	return twisted{Store: s, try: func(ctx context.Context, keys []string) (locking.Lease, error) {
		l, err := s.TryAcquire(ctx, keys...)
		l.Until = l.Until.Round(0)
		return l, err
	}}
}

// deaf does not hear that ctx ended.
func deaf(s *Store) locking.Store {
	return twisted{
		Store: s,
		try: func(ctx context.Context, keys []string) (locking.Lease, error) {
			return s.TryAcquire(context.WithoutCancel(ctx), keys...)
		},
		renew: func(ctx context.Context, l locking.Lease) (locking.Lease, error) {
			return s.Renew(context.WithoutCancel(ctx), l)
		},
		release: func(ctx context.Context, l locking.Lease) error { return s.Release(context.WithoutCancel(ctx), l) },
	}
}

// renames makes a store that takes keys through an encoding.
func renames(encode func(string) string) func(*Store) locking.Store {
	return func(s *Store) locking.Store {
		return twisted{Store: s, try: func(ctx context.Context, keys []string) (locking.Lease, error) {
			encoded := make([]string, len(keys))
			for i, k := range keys {
				encoded[i] = encode(k)
			}
			return s.TryAcquire(ctx, encoded...)
		}}
	}
}

// takesOneByOne leaves what it has when the next key is busy.
func takesOneByOne(s *Store) locking.Store {
	return twisted{Store: s, try: func(ctx context.Context, keys []string) (all locking.Lease, err error) {
		for _, k := range keys {
			if all, err = s.TryAcquire(ctx, k); err != nil {
				return locking.Lease{}, err
			}
		}
		all.Keys = keys
		return all, nil
	}}
}

// guesses takes silence for an answer: busy, or lost.
func guesses(s *Store) locking.Store {
	guess := func(err, instead error) error {
		if errors.Is(err, locking.ErrOutcomeUnknown) {
			return instead
		}
		return err
	}
	return twisted{
		Store: s,
		try: func(ctx context.Context, keys []string) (locking.Lease, error) {
			l, err := s.TryAcquire(ctx, keys...)
			return l, guess(err, locking.ErrBusy)
		},
		renew: func(ctx context.Context, l locking.Lease) (locking.Lease, error) {
			l, err := s.Renew(ctx, l)
			return l, guess(err, locking.ErrLost)
		},
		release: func(ctx context.Context, l locking.Lease) error { return guess(s.Release(ctx, l), locking.ErrLost) },
	}
}

// queue stands in front of stores and serves the waiters in an order of its own.
// With pick = first it is a FIFO, in this process.
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
