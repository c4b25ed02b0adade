// SPDX-License-Identifier: MIT

package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// properties are what the contract does not test, because it knows one mode and one key.
var properties = map[string]func(*steps){
	"readers share, and exclude writers": func(s *steps) {
		a, b := s.rw(time.Minute), s.rw(time.Minute)
		first, second := s.take(a.Read, "k"), s.take(b.Read, "k")
		if first.Fence != 0 || first.Owner == second.Owner {
			s.fail("leases %+v and %+v", first, second)
		}
		s.busy(a.Write, "k")
		s.release(a.Read, first)
		s.busy(a.Write, "k")
		s.release(b.Read, second)
		writer := s.take(b.Write, "k")
		s.busy(a.Read, "k")
		s.busy(a.Write, "k")
		s.release(b.Write, writer)
	},
	"readers do not overtake a writer": func(s *steps) {
		a, b := s.rw(time.Minute), s.rw(time.Minute)
		reader := s.take(a.Read, "k")
		writer := s.wait(b.Write, "k")
		s.busy(a.Read, "k")
		s.release(a.Read, reader)
		s.release(b.Write, s.granted("the writer", writer))
		s.release(a.Read, s.take(a.Read, "k"))
	},
	"writers do not overtake a reader": func(s *steps) {
		a, b := s.rw(time.Minute), s.rw(time.Minute)
		first := s.take(a.Write, "k")
		reader := s.dead(b.Read, "k")
		s.release(a.Write, first)
		s.busy(a.Write, "k") // the reader has not asked again yet
		lease, err := reader.take(s.ctx, false)
		if err != nil {
			s.fail("the reader: %w", err)
		}
		s.busy(a.Write, "k")
		s.release(b.Read, lease)
		s.release(a.Write, s.take(a.Write, "k"))
	},
	"readers next to each other begin together": func(s *steps) {
		a, b := s.rw(time.Minute), s.rw(time.Minute)
		writer := s.take(a.Write, "k")
		var readers []outcome
		for range 4 {
			readers = append(readers, s.wait(b.Read, "k"))
		}
		s.release(a.Write, writer)
		for i, r := range readers { // none has released
			s.granted(fmt.Sprintf("reader %d", i), r)
		}
	},
	"each lease has its own end": func(s *steps) {
		long, short := s.semaphore(time.Minute, 2), s.semaphore(1500*time.Millisecond, 2)
		stays, dies := s.take(long, "k"), s.take(short, "k")
		s.busy(long, "k")
		s.eventually("the short lease is over", func() bool { return time.Now().After(dies.Until.Add(100 * time.Millisecond)) })
		var next locking.Lease
		s.eventually("a permit is free", func() (free bool) {
			var err error
			next, err = long.TryAcquire(s.ctx, "k")
			return err == nil
		})
		s.busy(long, "k")
		s.lost(short, dies)
		s.busy(long, "k")
		s.release(long, stays)
		s.release(long, next)
	},
	"a permit is released once": func(s *steps) {
		q := s.semaphore(time.Minute, 2)
		first, second := s.take(q, "k"), s.take(q, "k")
		s.busy(q, "k")
		s.release(q, first)
		s.lost(q, first)
		third := s.take(q, "k")
		s.busy(q, "k")
		s.release(q, second)
		s.release(q, third)
	},
	"permits are granted in order": func(s *steps) {
		q := s.semaphore(time.Minute, 2)
		a, b := s.take(q, "k"), s.take(q, "k")
		first, second := s.wait(q, "k"), s.wait(q, "k")
		s.release(q, a)
		a = s.granted("the first waiter", first)
		s.busy(q, "k")
		s.release(q, b)
		s.release(q, s.granted("the second waiter", second))
		s.release(q, a)
	},
	// No poll heals a message that is not sent: each of these waits depends on one.
	"at most n hold a key": func(s *steps) {
		var inside atomic.Int32
		s.contend([]*opened{s.semaphore(time.Minute, 3), s.semaphore(time.Minute, 3), s.semaphore(time.Minute, 3)}, func(_ *opened, n int32) error {
			if holders := inside.Add(n); holders > 3 {
				return fmt.Errorf("%d holders of 3 permits", holders)
			}
			return nil
		})
	},
	"readers and writers are never together": func(s *steps) {
		a, b := s.rw(time.Minute), s.rw(time.Minute)
		var readers, writers atomic.Int32
		s.contend([]*opened{a.Read, a.Write, b.Read, b.Write, b.Read}, func(q *opened, n int32) error {
			if q.mode == shared {
				readers.Add(n)
			} else {
				writers.Add(n)
			}
			if r, w := readers.Load(), writers.Load(); w > 1 || w > 0 && r > 0 {
				return fmt.Errorf("%d readers and %d writers", r, w)
			}
			return nil
		})
	},
	"a waiter that leaves delays no other": func(s *steps) {
		q := s.semaphore(time.Minute, 1)
		q.ticketTTL = time.Hour
		held := s.take(q, "k")
		ctx, cancel := context.WithCancel(s.ctx)
		left := locktest.Beside(func() (locking.Lease, error) { return q.Acquire(ctx, "k") })
		s.eventually("a waiter has a ticket", func() bool { return len(s.tickets(q, "k")) == 1 })
		next := s.wait(q, "k")
		cancel()
		if _, err := (<-left).Pair(); !errors.Is(err, context.Canceled) || !errors.Is(err, locking.ErrBusy) {
			s.fail("the waiter that leaves: got %v, want context.Canceled and ErrBusy", err)
		}
		s.eventually("its ticket is gone", func() bool { return len(s.tickets(q, "k")) == 1 })
		s.release(q, held)
		s.release(q, s.granted("the next waiter", next))
	},
	// Redisson counts five seconds for each dead waiter, one after the other (issue 1104).
	"dead waiters cost the TTL of a ticket once": func(s *steps) {
		s.poll = 50 * time.Millisecond
		q := s.semaphore(time.Minute, 1)
		held, dies := s.take(q, "k"), s.semaphore(time.Minute, 1)
		dies.ticketTTL = 700 * time.Millisecond
		for range 20 {
			s.dead(dies, "k")
		}
		next := s.wait(q, "k")
		died := time.Now()
		s.release(q, held)
		s.granted("the living waiter", next)
		if took := time.Since(died); took > 5*time.Second {
			s.fail("granted %v after the release", took)
		}
	},
	// In Redisson a waiter loses its ticket after five minutes, and may wait for ever (issue 3004).
	"a living waiter keeps its ticket": func(s *steps) {
		s.poll = 50 * time.Millisecond
		q := s.semaphore(time.Minute, 1)
		q.ticketTTL = 2 * time.Second
		held := s.take(q, "k")
		first, second := s.wait(q, "k"), s.wait(q, "k")
		want, end := s.tickets(q, "k"), time.Now().Add(3*time.Second)
		s.eventually("the TTL of a ticket is over", func() bool {
			if got := s.tickets(q, "k"); !slices.Equal(got, want) {
				s.fail("the tickets were %q and are %q", want, got)
			}
			return time.Now().After(end)
		})
		s.release(q, held)
		s.release(q, s.granted("the first waiter", first))
		s.release(q, s.granted("the second waiter", second))
	},
	// If it kept one of two tickets, it could be before another in one queue and behind it in the other.
	"a waiter that was forgotten goes to the end of all queues": func(s *steps) {
		q := s.semaphore(time.Minute, 1)
		q.ticketTTL = time.Hour
		s.take(q, "a", "b")
		first := s.dead(q, "a", "b")
		q.client.ZRem(s.ctx, q.queue.names([]string{"a"})[0], first.full())
		second := s.dead(q, "a", "b")
		if _, err := first.take(s.ctx, true); !errors.Is(err, locking.ErrBusy) {
			s.fail("the first waiter: %v", err)
		}
		s.waits(q, "a", second, first)
		s.waits(q, "b", second, first)
	},
	// The network may deliver a request twice, and late: as the same owner.
	"a duplicate within a lease is the same grant": func(s *steps) {
		q := s.semaphore(time.Minute, 2)
		r := s.request(q, "a", "b")
		lease, err := r.take(s.ctx, false)
		again, twice := r.take(s.ctx, true)
		if err != nil || twice != nil || again.Owner != lease.Owner {
			s.fail("granted %+v, %v, then %+v, %v", lease, err, again, twice)
		}
		s.release(q, s.take(q, "a", "b")) // the other permit
		s.release(q, lease)
	},
	"a duplicate after a lease does not revive it": func(s *steps) {
		rw := s.rw(time.Minute)
		r := s.request(rw.Read, "k")
		lease, _ := r.take(s.ctx, false)
		s.release(rw.Read, lease)
		s.release(rw.Write, s.take(rw.Write, "k")) // what the reader has read may be old now
		if _, err := r.take(s.ctx, false); err != nil {
			s.fail("the duplicate: %w", err)
		}
		s.lost(rw.Read, lease)
		s.release(rw.Write, s.take(rw.Write, "k")) // the release has removed it all the same
	},
	"a duplicate of the first request of a waiter keeps its ticket": func(s *steps) {
		q := s.semaphore(time.Minute, 1)
		held, first, second := s.take(q, "k"), s.dead(q, "k"), s.dead(q, "k")
		if _, err := first.take(s.ctx, true); !errors.Is(err, locking.ErrBusy) {
			s.fail("the duplicate: %v", err)
		}
		s.waits(q, "k", first, second)
		s.release(q, held)
	},
	"a request soon after another writes nothing": func(s *steps) {
		q := s.semaphore(time.Minute, 1)
		held, r := s.take(q, "k"), s.dead(q, "k")
		deadline := func() float64 { return q.client.ZScore(s.ctx, q.queue.names(r.keys)[0], "~"+r.full()).Val() }
		first := deadline()
		<-time.After(10 * time.Millisecond)
		if _, err := r.take(s.ctx, true); !errors.Is(err, locking.ErrBusy) || deadline() != first {
			s.fail("%v; the deadline was %.0f and is %.0f", err, first, deadline())
		}
		s.release(q, held)
	},
	"the end of a lease wakes the first waiter at the next request": func(s *steps) {
		short, q := s.semaphore(300*time.Millisecond, 1), s.semaphore(time.Minute, 1)
		dies := s.take(short, "k")
		first := s.wait(q, "k")
		s.eventually("the lease is over", func() bool { return time.Now().After(dies.Until.Add(50 * time.Millisecond)) })
		s.busy(q, "k") // any request forgets the owners that are late, and tells the first waiter
		s.release(q, s.granted("the first waiter", first))
	},
	"nothing remains": func(s *steps) {
		q := s.semaphore(time.Minute, 1)
		queues := func(l locking.Lease) (names []string) {
			for _, k := range l.Keys {
				names = append(names, q.queue.names([]string{k})[0])
			}
			return names
		}
		for _, keys := range [][]string{{"a"}, {"a", "b"}} {
			held := s.take(q, keys...)
			for _, name := range queues(held) {
				if left := q.client.PTTL(s.ctx, name).Val(); left <= 0 || left > 2*time.Minute {
					s.fail("%s expires in %v", name, left)
				}
			}
			next := s.wait(q, "a")
			s.release(q, held)
			s.release(q, s.granted("the waiter", next))
			if n := q.client.Exists(s.ctx, queues(held)...).Val(); n != 0 {
				s.fail("%d queues remain after the last release", n)
			}
		}
	},
}

// A request that finds its own grant restarts the TTL: the queue has to last as long.
func TestQueue_OutlivesARepeatedRequest(t *testing.T) {
	t.Parallel()
	s := newSteps(t, 20*time.Second, nil)
	q := s.semaphore(1500*time.Millisecond, 1)
	r := s.request(q, "k")
	if _, err := r.take(s.ctx, false); err != nil {
		t.Fatal(err)
	}
	<-time.After(700 * time.Millisecond)
	lease, err := r.take(s.ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	if left := q.client.PTTL(s.ctx, q.queue.names(lease.Keys)[0]).Val(); left < time.Until(lease.Until) {
		t.Errorf("the queue ends in %v, the lease in %v", left, time.Until(lease.Until))
	}
	s.release(q, lease)
}

func TestQueue_Properties(t *testing.T) {
	t.Parallel()
	locktest.Subtests(t, properties, func(t *testing.T, property func(*steps)) {
		s := newSteps(t, 20*time.Second, nil)
		if property(s); s.err != nil {
			t.Error(s.err)
		}
	})
}

// The control: the classic semaphore in a sorted set compares with the time of its clients.
// One whose clock is ahead forgets the permits of all others.
func TestSemaphore_AClientsClockWouldGrantTooMany(t *testing.T) {
	t.Parallel()
	s := newSteps(t, 20*time.Second, nil)
	q, ahead := s.semaphore(time.Minute, 2), s.semaphore(time.Minute, 2)
	const now = "time[2], time[1] * 1000 + math.floor(time[2] / 1000)"
	edit(t, ahead.queue, now, now+" + 3600000")
	a, b := s.take(q, "k"), s.take(q, "k")
	s.busy(q, "k")
	s.take(ahead, "k") // a third holder: the others still trust their leases
	s.lost(q, a)
	s.lost(q, b)
	if s.err != nil {
		t.Error(s.err)
	}
	if now := time.Now(); !now.Before(a.Until) || !now.Before(b.Until) {
		t.Error("the leases were over anyway")
	}
}
