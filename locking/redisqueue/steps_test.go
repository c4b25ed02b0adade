// SPDX-License-Identifier: MIT

package redisqueue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/locktest"
	"shop/locking/redislock"
	"shop/locking/redislock/redistest"
)

// steps are the steps of a test of several stores on one key space. After a step that
// fails, the later ones do nothing. So a test can run on a wrong variant, which must fail.
type steps struct {
	testing.TB
	ctx    context.Context
	prefix string
	edit   func(*queue)  // makes a driver wrong
	poll   time.Duration // of the waiters
	err    error         // of the first step that failed
}

// newSteps makes steps that are given up after limit.
func newSteps(t testing.TB, limit time.Duration, edit func(*queue)) *steps {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return &steps{TB: t, ctx: ctx, prefix: redistest.Prefix(t, redistest.URL(t)), edit: edit, poll: time.Hour}
}

func (s *steps) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// opened is a Store, with its driver.
type opened struct {
	*driver.Store
	*queue
}

// both are the sides of a read-write lock.
type both struct{ Read, Write *opened }

func (s *steps) rw(ttl time.Duration) both {
	return both{s.open(ttl, shared, "queue", holdersMax), s.open(ttl, exclusive, "queue", holdersMax)}
}

func (s *steps) semaphore(ttl time.Duration, permits int) *opened {
	return s.open(ttl, shared, "permits", permits)
}

func (s *steps) open(ttl time.Duration, mode, space string, limit int) *opened {
	s.Helper()
	q, err := newQueue(s.connect(ttl), ttl, redislock.Options{Prefix: s.prefix}, mode, space, limit)
	if err != nil {
		s.Fatal(err)
	}
	q.ticketTTL = time.Hour
	if s.edit != nil {
		s.edit(q)
	}
	o := settings(q)
	o.Limit, o.Pause = ttl/2, locking.Backoff{Base: s.poll, Max: s.poll}
	store, err := driver.New(q, o)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(store.Close)
	return &opened{store, q}
}

// connect makes a client that waits longer for an answer than a tuned one: most steps are one request,
// and the machine may be slow.
func (s *steps) connect(ttl time.Duration) *redis.Client {
	s.Helper()
	o, err := redis.ParseURL(redistest.URL(s))
	if err != nil {
		s.Fatal(err)
	}
	o = redislock.Tune(o, ttl)
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = ttl/2, ttl/2, ttl/2, ttl/2
	client := redis.NewClient(o)
	s.Cleanup(func() { _ = client.Close() })
	return client
}

func (s *steps) take(q *opened, keys ...string) (l locking.Lease) {
	if s.err == nil {
		var err error
		if l, err = q.TryAcquire(s.ctx, keys...); err != nil {
			s.fail("acquire %q, free: %w", keys, err)
		}
	}
	return l
}

func (s *steps) busy(q *opened, keys ...string) {
	if s.err == nil {
		if l, err := q.TryAcquire(s.ctx, keys...); !errors.Is(err, locking.ErrBusy) {
			s.fail("acquire %q: got %+v and %v, want ErrBusy", keys, l, err)
		}
	}
}

func (s *steps) release(q *opened, l locking.Lease) {
	if s.err == nil {
		if err := q.Release(s.ctx, l); err != nil {
			s.fail("release: %w", err)
		}
	}
}

func (s *steps) lost(q *opened, l locking.Lease) {
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

// wait lets q wait for keys, and returns when its ticket is in the queue of each, and its process listens.
func (s *steps) wait(q *opened, keys ...string) outcome {
	before := make([]int, len(keys))
	for i, k := range keys {
		before[i] = len(s.tickets(q, k))
	}
	done := locktest.Beside(func() (locking.Lease, error) { return q.Acquire(s.ctx, keys...) })
	for i, k := range keys {
		s.eventually("a waiter has a ticket", func() bool { return len(s.tickets(q, k)) > before[i] })
	}
	own := q.channel(q.process)
	s.eventually("its process listens", func() bool { return q.client.PubSubNumSub(s.ctx, own).Val()[own] > 0 })
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
func (s *steps) tickets(q *opened, key string) []string {
	waiting := &redis.ZRangeBy{Min: "1e14", Max: "+inf"}
	return q.client.ZRangeByScore(s.ctx, q.queue.names([]string{key})[0], waiting).Val()
}

// waits checks which owners wait for key, in order.
func (s *steps) waits(q *opened, key string, want ...*request) {
	var owners []string
	for _, r := range want {
		owners = append(owners, r.full())
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

// request is one acquisition, whose requests a test sends itself.
type request struct {
	*opened
	owner string
	keys  []string
}

func (s *steps) request(q *opened, keys ...string) *request { return &request{q, rand.Text(), keys} }

func (r *request) full() string { return r.mode + ":" + r.process + ":" + r.owner }

func (r *request) take(ctx context.Context, wait bool) (locking.Lease, error) {
	g, err := r.Take(ctx, r.keys, r.owner, wait)
	return locking.Lease{Keys: r.keys, Owner: r.owner + "/" + g.Mark, Fence: g.Fence}, err
}

// dead leaves a ticket for keys whose waiter sends no further request.
func (s *steps) dead(q *opened, keys ...string) *request {
	r := s.request(q, keys...)
	if _, err := r.take(s.ctx, true); !errors.Is(err, locking.ErrBusy) {
		s.fail("a waiter: got %v, want ErrBusy", err)
	}
	return r
}

// contend lets two goroutines of each store hold k for a moment, again and again, and
// reports what held does when it finds too many of them at once.
func (s *steps) contend(stores []*opened, held func(q *opened, inside int32) error) {
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
