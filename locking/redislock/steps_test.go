package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
)

// steps are the steps of a test of several stores on one key space. After a step that
// fails, the later ones do nothing. So a test can run on a wrong variant, which must fail.
type steps struct {
	testing.TB
	ctx    context.Context
	prefix string
	edit   func(*QueueStore) // makes a store wrong
	poll   time.Duration     // of the waiters
	err    error             // of the first step that failed
}

// newSteps makes steps that are given up after limit.
func newSteps(t testing.TB, limit time.Duration, edit func(*QueueStore)) *steps {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return &steps{TB: t, ctx: ctx, prefix: newPrefix(t, redisURL(t)), edit: edit, poll: time.Hour}
}

func (s *steps) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// rw makes a read-write lock that has subscribed. A waiter of one that has not is granted nothing by a release.
func (s *steps) rw(ttl time.Duration) *RW {
	rw := s.deafRW(ttl)
	subscribe(s, rw.Read.inbox)
	return rw
}

func (s *steps) deafRW(ttl time.Duration) *RW {
	s.Helper()
	rw, err := NewRW(s.connect(ttl), ttl, Options{Prefix: s.prefix})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(rw.Close)
	s.prepare(rw.Read)
	s.prepare(rw.Write)
	return rw
}

func (s *steps) semaphore(ttl time.Duration, permits int) *QueueStore {
	q := s.deaf(ttl, permits)
	subscribe(s, q.inbox)
	return q
}

// deaf makes a semaphore that has not subscribed.
func (s *steps) deaf(ttl time.Duration, permits int) *QueueStore {
	s.Helper()
	q, err := NewSemaphore(s.connect(ttl), ttl, permits, Options{Prefix: s.prefix})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(q.Close)
	s.prepare(q)
	return q
}

// connect makes a client that waits longer for an answer than a tuned one: most steps are one request,
// and the machine may be slow.
func (s *steps) connect(ttl time.Duration) *redis.Client {
	s.Helper()
	o, err := redis.ParseURL(redisURL(s))
	if err != nil {
		s.Fatal(err)
	}
	o = Tune(o, ttl)
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = ttl/2, ttl/2, ttl/2, ttl/2
	client := redis.NewClient(o)
	s.Cleanup(func() { _ = client.Close() })
	return client
}

func (s *steps) prepare(q *QueueStore) {
	q.inbox.poll, q.ticketTTL = s.poll, time.Hour
	q.store.requestTimeout = q.store.ttl / 2
	if s.edit != nil {
		s.edit(q)
	}
}

func (s *steps) take(q *QueueStore, keys ...string) (l locking.Lease) {
	if s.err == nil {
		var err error
		if l, err = q.TryAcquire(s.ctx, keys...); err != nil {
			s.fail("acquire %q, free: %w", keys, err)
		}
	}
	return l
}

func (s *steps) busy(q *QueueStore, keys ...string) {
	if s.err == nil {
		if l, err := q.TryAcquire(s.ctx, keys...); !errors.Is(err, locking.ErrBusy) {
			s.fail("acquire %q: got %+v and %v, want ErrBusy", keys, l, err)
		}
	}
}

func (s *steps) release(q *QueueStore, l locking.Lease) {
	if s.err == nil {
		if err := q.Release(s.ctx, l); err != nil {
			s.fail("release: %w", err)
		}
	}
}

func (s *steps) lost(q *QueueStore, l locking.Lease) {
	if s.err == nil {
		if _, err := q.Renew(s.ctx, l); !errors.Is(err, locking.ErrLost) {
			s.fail("renew: got %v, want ErrLost", err)
		}
		if err := q.Release(s.ctx, l); !errors.Is(err, locking.ErrLost) {
			s.fail("release: got %v, want ErrLost", err)
		}
	}
}

type outcome = <-chan locktest.Outcome[locking.Lease]

// wait lets q wait for keys, and returns when its ticket is in the queue of each.
func (s *steps) wait(q *QueueStore, keys ...string) outcome {
	before := make([]int, len(keys))
	for i, k := range keys {
		before[i] = len(s.tickets(q, k))
	}
	done := locktest.Beside(func() (locking.Lease, error) { return q.Acquire(s.ctx, keys...) })
	for i, k := range keys {
		s.eventually("a waiter has a ticket", func() bool { return len(s.tickets(q, k)) > before[i] })
	}
	return done
}

func (s *steps) granted(who string, o outcome) locking.Lease {
	if s.err != nil {
		return locking.Lease{}
	}
	l, err := (<-o).Pair()
	if err != nil {
		s.fail("%s: %w", who, err)
	}
	return l
}

// tickets returns the owners that wait for key, in order.
func (s *steps) tickets(q *QueueStore, key string) []string {
	waiting := &redis.ZRangeBy{Min: "1e14", Max: "+inf"}
	return q.store.client.ZRangeByScore(s.ctx, q.names([]string{key})[0], waiting).Val()
}

// waits checks which owners wait for key, in order.
func (s *steps) waits(q *QueueStore, key string, want ...*request) {
	var owners []string
	for _, r := range want {
		owners = append(owners, r.owner)
	}
	if got := s.tickets(q, key); !slices.Equal(got, owners) {
		s.fail("%s: the tickets are those of %q, want %q", key, got, owners)
	}
}

func (s *steps) eventually(what string, ok func() bool) {
	for s.err == nil && !ok() {
		select {
		case <-time.After(2 * time.Millisecond):
		case <-s.ctx.Done():
			s.fail("%s: %w", what, s.ctx.Err())
		}
	}
}

func (s *steps) request(q *QueueStore, keys ...string) *request {
	r, err := q.request(s.ctx, keys)
	if err != nil {
		s.fail("request %q: %w", keys, err)
	}
	return r
}

// dead leaves a ticket for keys whose waiter sends no further request.
func (s *steps) dead(q *QueueStore, keys ...string) *request {
	r := s.request(q, keys...)
	if _, err := r.take(s.ctx, q.ticketTTL); !errors.Is(err, locking.ErrBusy) {
		s.fail("a waiter: got %v, want ErrBusy", err)
	}
	return r
}

// contend lets two goroutines of each store hold k for a moment, again and again, and
// reports what held does when it finds too many of them at once.
func (s *steps) contend(stores []*QueueStore, held func(q *QueueStore, inside int32) error) {
	var all sync.WaitGroup
	errs := make(chan error, 2*len(stores))
	for _, q := range stores {
		for range 2 {
			all.Go(func() {
				for range 10 {
					lease, err := q.Acquire(s.ctx, "k")
					if err == nil {
						err = held(q, 1)
						<-time.After(time.Millisecond) // for others to come in
						err = errors.Join(err, held(q, -1), q.Release(s.ctx, lease))
					}
					if err != nil {
						errs <- err
						return
					}
				}
			})
		}
	}
	all.Wait()
	select {
	case err := <-errs:
		s.fail("%w", err)
	default:
	}
}
