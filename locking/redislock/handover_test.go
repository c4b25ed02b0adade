package redislock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
)

// handovers are the properties of a queue in which a release grants the key to the next waiter.
var handovers = map[string]func(*steps){
	"a release grants the key to the first waiter": func(s *steps) {
		q := s.semaphore(time.Minute, 1)
		held, first, second := s.take(q, "k"), s.dead(q, "k"), s.dead(q, "k")
		s.release(q, held)
		s.waits(q, "k", second) // the first has not asked again yet
		s.busy(q, "k")
		lease, err := first.take(s.ctx, q.ticketTTL)
		if err != nil {
			s.fail("the first waiter: %w", err)
		}
		s.release(q, lease)
	},
	"a message hands the key over": func(s *steps) {
		q := s.semaphore(time.Minute, 1)
		held, next := s.take(q, "k"), s.wait(q, "k")
		asked := time.Now() // after the last request of the waiter
		<-time.After(300 * time.Millisecond)
		s.release(q, held)
		lease := s.granted("the waiter", next)
		if err := countsFrom(asked, lease, q.store.trust); err != nil {
			s.fail("%w", err)
		}
		s.release(q, lease)
	},
	"a message for an earlier ticket hands nothing over": func(s *steps) {
		q := s.semaphore(time.Minute, 1)
		held, r := s.take(q, "k"), s.dead(q, "k")
		late := fmt.Sprintf("%s/1234/%d", r.owner, r.ticket)
		if _, handed := r.handed(late); !handed {
			s.fail("the message %q hands nothing over", late)
		}
		q.store.client.ZRem(s.ctx, q.names(r.keys)[0], r.owner, "~"+r.owner) // paused for the TTL of its ticket
		if _, err := r.take(s.ctx, q.ticketTTL); !errors.Is(err, locking.ErrBusy) {
			s.fail("the next request: %w", err)
		}
		if lease, handed := r.handed(late); handed {
			s.fail("the message %q hands over %+v", late, lease)
		}
		s.release(q, held)
	},
	"an owner of an earlier version stops no release": func(s *steps) {
		q := s.semaphore(time.Minute, 1)
		held := s.take(q, "k")
		old := redis.Z{Score: 1.5e15, Member: "xOLD"} // it has waited longest
		if err := q.store.client.ZAdd(s.ctx, q.names(held.Keys)[0], old).Err(); err != nil {
			s.fail("%w", err)
		}
		s.wait(q, "k")
		if err := q.Release(s.ctx, held); err != nil { // once: a repeated one would find nothing to release
			s.fail("release: %w", err)
		}
	},
	"a process that does not listen is granted nothing": func(s *steps) {
		q, deaf := s.semaphore(time.Minute, 1), s.deaf(time.Minute, 1)
		held, first, second := s.take(q, "k"), s.dead(deaf, "k"), s.dead(q, "k")
		s.release(q, held)
		s.waits(q, "k", first, second) // it keeps its place
		s.busy(q, "k")
		lease, err := first.take(s.ctx, q.ticketTTL)
		if err != nil {
			s.fail("the first waiter: %w", err)
		}
		s.release(deaf, lease)
		s.waits(q, "k")
	},
	"a waiter for several keys is granted none of them alone": func(s *steps) {
		q := s.semaphore(time.Minute, 1)
		a, b := s.take(q, "a"), s.take(q, "b")
		both := s.dead(q, "a", "b")
		s.release(q, a)
		s.waits(q, "a", both)
		if _, err := both.take(s.ctx, q.ticketTTL); !errors.Is(err, locking.ErrBusy) {
			s.fail("the waiter: %w", err)
		}
		s.release(q, b)
		s.waits(q, "b", both)
		if _, err := both.take(s.ctx, q.ticketTTL); err != nil {
			s.fail("the waiter: %w", err)
		}
	},
	"a message wakes a waiter for several keys": func(s *steps) {
		q := s.semaphore(time.Minute, 1)
		a, b := s.take(q, "a"), s.take(q, "b")
		both := s.wait(q, "a", "b")
		s.release(q, a)
		s.release(q, b)
		s.release(q, s.granted("the waiter", both))
	},
	"a reader that takes the key by a request lets the next one in": func(s *steps) {
		a, deaf := s.rw(time.Minute), s.deafRW(time.Minute)
		writer, first, second := s.take(a.Write, "k"), s.dead(deaf.Read, "k"), s.dead(a.Read, "k")
		s.release(a.Write, writer)
		s.waits(a.Read, "k", first, second)
		if _, err := first.take(s.ctx, a.Read.ticketTTL); err != nil {
			s.fail("the first reader: %w", err)
		}
		s.waits(a.Read, "k")
	},
	"the end of a lease grants the key to the first waiter": func(s *steps) {
		long, short := s.semaphore(time.Minute, 1), s.semaphore(1500*time.Millisecond, 1)
		dies := s.take(short, "k")
		next := s.wait(long, "k")
		s.eventually("the lease is over", func() bool { return time.Now().After(dies.Until.Add(100 * time.Millisecond)) })
		s.busy(short, "k") // this request removes its owner
		s.release(long, s.granted("the waiter", next))
	},
	"a waiter that leaves after its grant passes the key on": func(s *steps) {
		q := s.semaphore(time.Minute, 1)
		held, first := s.take(q, "k"), s.dead(q, "k")
		second := s.wait(q, "k")
		s.release(q, held)
		if err := first.leave(s.ctx); err != nil {
			s.fail("leave: %w", err)
		}
		s.release(q, s.granted("the second waiter", second))
	},
	"a lease that is handed over lasts a TTL": func(s *steps) {
		long, short := s.semaphore(time.Minute, 1), s.semaphore(1500*time.Millisecond, 1)
		held, next := s.take(long, "k"), s.wait(short, "k")
		s.release(long, held)
		lease := s.granted("the waiter", next)
		s.eventually("the key is free", func() bool {
			l, err := long.TryAcquire(s.ctx, "k")
			held = l
			return err == nil
		})
		if left := time.Until(lease.Until); left > 0 {
			s.fail("another holder %v before Until", left)
		}
		s.release(long, held)
	},
	"a queue outlives a lease that is handed over": func(s *steps) {
		long, short := s.semaphore(time.Minute, 1), s.semaphore(1500*time.Millisecond, 1)
		long.ticketTTL = 500 * time.Millisecond
		held, next := s.take(short, "k"), s.wait(long, "k")
		s.release(short, held)
		lease := s.granted("the waiter", next)
		if left := long.store.client.PTTL(s.ctx, long.names(lease.Keys)[0]).Val(); left < time.Until(lease.Until) {
			s.fail("the queue ends in %v, the lease in %v", left, time.Until(lease.Until))
		}
		s.release(long, lease)
	},
	"a release after the deadline is late": func(s *steps) {
		q := s.semaphore(1500*time.Millisecond, 1)
		lease := s.take(q, "k")
		if err := s.dead(q, "k").leave(s.ctx); err != nil { // for this waiter the queue lasts longer than the lease
			s.fail("leave: %w", err)
		}
		s.eventually("the lease is over", func() bool { return time.Now().After(lease.Until.Add(100 * time.Millisecond)) })
		if err := q.Release(s.ctx, lease); !errors.Is(err, locking.ErrLost) {
			s.fail("release: got %v, want ErrLost", err)
		}
	},
}

// countsFrom returns an error if the trust of l begins after asked.
func countsFrom(asked time.Time, l locking.Lease, trust time.Duration) error {
	if over := l.Until.Sub(asked.Add(trust)); over > 0 {
		return fmt.Errorf("Until is beyond the last request + TTL, by at least %v", over)
	}
	return nil
}

// The control of "a message hands the key over": a waiter that counts from the arrival of the message is noticed.
func TestHandover_TrustFromTheMessageIsTooLong(t *testing.T) {
	t.Parallel()
	asked := time.Now()
	<-time.After(10 * time.Millisecond)
	if countsFrom(asked, locking.Lease{Until: time.Now().Add(time.Minute)}, time.Minute) == nil {
		t.Error("not noticed")
	}
}

// The control of "a release after the deadline is late": without the client's check, close.lua would release it.
func TestHandover_ALateReleaseMustNotUseCloseLua(t *testing.T) {
	t.Parallel()
	s := newSteps(t, 20*time.Second, func(q *QueueStore) { q.scripts.leave = q.scripts.release })
	if handovers["a release after the deadline is late"](s); s.err == nil {
		t.Error("not noticed")
	}
}

// A lease that is handed over with less than half of its trust is requested again, which restarts its TTL.
func TestHandover_ALateMessageIsAHint(t *testing.T) {
	t.Parallel()
	s := newSteps(t, 20*time.Second, nil)
	q := s.semaphore(time.Minute, 1)
	held, r := s.take(q, "k"), s.dead(q, "k")
	message := fmt.Sprintf("%s/1234/%d", r.owner, r.ticket)
	for ago, want := range map[time.Duration]bool{0: true, 29 * time.Second: true, 31 * time.Second: false, time.Hour: false} {
		r.sent = time.Now().Add(-ago)
		lease, handed := r.handed(message)
		if handed != want {
			t.Errorf("%v after the last request: handed over %t, want %t", ago, handed, want)
		}
		if until := r.sent.Add(q.store.trust); !lease.Until.Equal(until) {
			t.Errorf("Until %v, want %v", lease.Until, until)
		}
	}
	for _, message := range []string{"", r.owner, r.owner + "/", r.owner + "/1234", r.owner + "/1234/", r.owner + "//" + message} {
		if lease, handed := r.handed(message); handed {
			t.Errorf("the message %q hands over %+v", message, lease)
		}
	}
	s.release(q, held)
}

// A request that arrives after the hand-over, as a duplicate of an earlier one, restarts the TTL and takes no other place.
func TestHandover_ADuplicateKeepsTheLease(t *testing.T) {
	t.Parallel()
	s := newSteps(t, 20*time.Second, nil)
	q := s.semaphore(time.Minute, 1)
	held, r := s.take(q, "k"), s.dead(q, "k")
	s.release(q, held)
	lease, err := r.take(s.ctx, q.ticketTTL)
	again, twice := r.take(s.ctx, q.ticketTTL)
	if err != nil || twice != nil || lease.Owner != again.Owner {
		t.Errorf("granted %+v, %v, then %+v, %v", lease, err, again, twice)
	}
	s.waits(q, "k")
	if lease, err = q.Renew(s.ctx, lease); err != nil {
		t.Error(err)
	}
	s.release(q, lease)
	if s.err != nil {
		t.Error(s.err)
	}
}

// A waiter whose ctx ends while the message is under way releases the key.
func TestHandover_AWaiterThatGivesUpReleasesTheKey(t *testing.T) {
	t.Parallel()
	s := newSteps(t, 20*time.Second, nil)
	q := s.deaf(time.Minute, 1)
	q.inbox.name = func(string) string { return "lost" }
	subscribe(s, q.inbox)
	held := s.take(q, "k")
	ctx, cancel := context.WithCancel(s.ctx)
	left := locktest.Beside(func() (locking.Lease, error) { return q.Acquire(ctx, "k") })
	s.eventually("a waiter has a ticket", func() bool { return len(s.tickets(q, "k")) == 1 })
	s.release(q, held)
	s.busy(q, "k") // it has been granted the key
	cancel()
	if _, err := (<-left).Pair(); !errors.Is(err, context.Canceled) || !errors.Is(err, locking.ErrBusy) {
		t.Errorf("the waiter: got %v, want context.Canceled and ErrBusy", err)
	}
	s.eventually("the key is free", func() bool {
		l, err := q.TryAcquire(s.ctx, "k")
		held = l
		return err == nil
	})
	s.release(q, held)
	if s.err != nil {
		t.Error(s.err)
	}
}

// A holder who may not publish hands the key over, and the waiter finds its grant at the next poll. One who may not count the
// subscribers hands nothing over: its message is a hint.
func TestHandover_WithoutAPermission(t *testing.T) {
	t.Parallel()
	type lacking struct {
		rule string
		poll time.Duration
	}
	locktest.Subtests(t, map[string]lacking{
		"to publish": {"resetchannels", 50 * time.Millisecond},
		"to count":   {"-pubsub", time.Hour},
	}, func(t *testing.T, l lacking) {
		prefix := newPrefix(t, redisURL(t))
		holder, w := waiter(t, "fair", newUser(t, l.rule), prefix), waiter(t, "fair", redisURL(t), prefix)
		w.inbox.poll = l.poll
		subscribe(t, w.inbox)
		held := locktest.Taken(t, holder, "k")
		done := w.awaits(t)
		give(t, holder, held)
		give(t, w, awaited(t, done))
	})
}
