package redislock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
)

// The goroutines of a process wait in order, and only the first of them sends requests.
func TestWaiter_OneRequestForAllWaitersOfAProcess(t *testing.T) {
	t.Parallel()
	prefix := newPrefix(t, redisURL(t))
	holder, w := waiter(t, "waiter", redisURL(t), prefix), waiter(t, "waiter", redisURL(t), prefix)
	held := locktest.Taken(t, holder, "k")
	var order []int
	var mu sync.Mutex
	var all sync.WaitGroup
	queue := &w.Store.(*Waiter).queue
	for i := range 8 {
		all.Go(func() {
			lease, err := w.acquire()
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if err := w.Release(t.Context(), lease); err != nil {
				t.Error(err)
			}
		})
		locktest.Eventually(t, "the waiter is in the queue", func() bool { return queue.Len("k") == i+1 })
	}
	w.inbox.mu.Lock()
	waiting := len(w.inbox.woken)
	w.inbox.mu.Unlock()
	if waiting > 1 {
		t.Errorf("%d goroutines wait for a message, want 1", waiting)
	}
	give(t, holder, held)
	all.Wait()
	for i, n := range order {
		if i != n {
			t.Fatalf("granted in the order %v", order)
		}
	}
}

// The lock is one: a Waiter and a Store exclude each other.
func TestWaiter_ExcludesAStore(t *testing.T) {
	t.Parallel()
	store := newStore(t, time.Minute)
	w := waiter(t, "waiter", redisURL(t), store.prefix)
	lease := locktest.Taken(t, store, "k")
	locktest.WantHeld(t, w, "k")
	give(t, store, lease)
	lease = locktest.Taken(t, w, "k")
	locktest.WantHeld(t, store, "k")
	if err := store.Release(t.Context(), lease); err != nil {
		t.Error(err)
	}
}

// Without its message, a release wakes no waiter: the poll ends the wait.
func TestWaiter_NoticesARelease(t *testing.T) {
	t.Parallel()
	locktest.Subtests(t, map[string]func(*Waiter){
		"another line": func(w *Waiter) {
			w.release = edited(t, withTake(wakeLua), "wake(lines[i],", "wake(lines[i] .. 'x',")
		},
		"no message": func(w *Waiter) {
			w.release = edited(t, withTake(wakeLua), "redis.pcall('PUBLISH', channel .. first, lock)", "1")
		},
	}, func(t *testing.T, edit func(*Waiter)) {
		prefix := newPrefix(t, redisURL(t))
		holder, w := waiter(t, "waiter", redisURL(t), prefix), waiter(t, "waiter", redisURL(t), prefix)
		edit(holder.Store.(*Waiter))
		subscribe(t, w.inbox)
		held := locktest.Taken(t, holder, "k")
		done := w.awaits(t)
		give(t, holder, held)
		w.sleepsOn(t, done)
		give(t, w, awaited(t, done))
	})
}

// sleepsOn fails the test if the wait of w ends by itself, and then wakes w.
func (w waits) sleepsOn(t *testing.T, done <-chan locktest.Outcome[locking.Lease]) {
	t.Helper()
	select {
	case o := <-done:
		t.Fatalf("granted: %+v", o)
	case <-time.After(time.Second):
	}
	w.inbox.wakeAll()
}

// The lock is gone, and its holder finds that out at the release. The next process is woken all the same.
func TestWaiter_TheReleaseOfALostLockWakesTheNext(t *testing.T) {
	t.Parallel()
	locktest.Subtests(t, map[string]bool{"mine or not value": true, "mine": false}, func(t *testing.T, wakes bool) {
		prefix := newPrefix(t, redisURL(t))
		holder, w := waiter(t, "waiter", redisURL(t), prefix), waiter(t, "waiter", redisURL(t), prefix)
		if !wakes {
			holder.Store.(*Waiter).release = edited(t, withTake(wakeLua), "mine or not value", "mine")
		}
		subscribe(t, w.inbox)
		held := locktest.Taken(t, holder, "k")
		done := w.awaits(t)
		if err := w.inbox.store.client.Del(t.Context(), w.inbox.store.scope("k")+"lock:k").Err(); err != nil {
			t.Fatal(err)
		}
		if err := holder.Release(t.Context(), held); !errors.Is(err, locking.ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}
		if !wakes {
			w.sleepsOn(t, done)
		}
		give(t, w, awaited(t, done))
	})
}

// Processes are woken in the order in which they began to wait: if the last was woken, two of three could pass the lock to
// each other for ever.
func TestWaiter_WakesProcessesInOrder(t *testing.T) {
	t.Parallel()
	locktest.Subtests(t, map[string][]string{"ZPOPMIN": {"first", "second", "third"}, "ZPOPMAX": {"third", "second", "first"}}, func(t *testing.T, want []string) {
		prefix := newPrefix(t, redisURL(t))
		holder := waiter(t, "waiter", redisURL(t), prefix)
		held := locktest.Taken(t, holder, "k")
		granted := make(chan string, 3)
		var all sync.WaitGroup
		for i, name := range []string{"first", "second", "third"} {
			w := waiter(t, "waiter", redisURL(t), prefix)
			if want[0] == "third" {
				w.Store.(*Waiter).release = edited(t, withTake(wakeLua), "ZPOPMIN", "ZPOPMAX")
				holder.Store.(*Waiter).release = w.Store.(*Waiter).release
			}
			subscribe(t, w.inbox)
			all.Go(func() {
				lease, err := w.acquire()
				if err != nil {
					t.Error(err)
				}
				granted <- name
				if err := w.Release(t.Context(), lease); err != nil {
					t.Error(err)
				}
			})
			locktest.Eventually(t, name+" is in the line", func() bool {
				return w.inbox.store.client.ZCard(t.Context(), w.inbox.store.scope("k")+"line:k").Val() == int64(i+1)
			})
		}
		give(t, holder, held)
		if got := []string{<-granted, <-granted, <-granted}; !slices.Equal(got, want) {
			t.Errorf("granted to %v, want %v", got, want)
		}
		all.Wait()
	})
}

// A process that was killed, and one that has given up, delay no other.
func TestWaiter_PassesOverProcessesThatDoNotWait(t *testing.T) {
	t.Parallel()
	prefix := newPrefix(t, redisURL(t))
	holder, gone, w := waiter(t, "waiter", redisURL(t), prefix), waiter(t, "waiter", redisURL(t), prefix), waiter(t, "waiter", redisURL(t), prefix)
	subscribe(t, gone.inbox)
	subscribe(t, w.inbox)
	held := locktest.Taken(t, holder, "k")
	client, line := w.inbox.store.client, w.inbox.store.scope("k")+"line:k"
	client.ZAdd(t.Context(), line, redis.Z{Member: "killed", Score: 1})

	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := locktest.Beside(func() (locking.Lease, error) { return gone.Store.(*Waiter).Acquire(ctx, "k") })
	locktest.Eventually(t, "two processes are in the line", func() bool { return client.ZCard(t.Context(), line).Val() == 2 })
	done := locktest.Beside(w.acquire)
	locktest.Eventually(t, "three processes are in the line", func() bool { return client.ZCard(t.Context(), line).Val() == 3 })
	cancel()
	if o := <-gaveUp; !errors.Is(o.Err, locking.ErrBusy) || !errors.Is(o.Err, context.Canceled) {
		t.Errorf("gave up: %v, want ErrBusy and Canceled", o.Err)
	}
	locktest.Eventually(t, "the process that gave up has left the line", func() bool { return client.ZCard(t.Context(), line).Val() == 2 })
	give(t, holder, held)
	give(t, w, awaited(t, done))
}

// A process that waits for two locks is woken for one of them. It cannot take both, so the next one in the line is woken.
func TestWaiter_PassesAWakeUpOn(t *testing.T) {
	t.Parallel()
	prefix := newPrefix(t, redisURL(t))
	holder, both, one := waiter(t, "waiter", redisURL(t), prefix), waiter(t, "waiter", redisURL(t), prefix), waiter(t, "waiter", redisURL(t), prefix)
	subscribe(t, both.inbox)
	subscribe(t, one.inbox)
	waiting := func(n int64) {
		locktest.Eventually(t, fmt.Sprintf("%d processes are in the line", n), func() bool {
			return one.inbox.store.client.ZCard(t.Context(), one.inbox.store.scope("k")+"line:k").Val() == n
		})
	}
	first, second := locktest.Taken(t, holder, "k"), locktest.Taken(t, holder, "l")
	all := locktest.Beside(func() (locking.Lease, error) { return both.Store.(*Waiter).Acquire(t.Context(), "k", "l") })
	waiting(1)
	done := locktest.Beside(one.acquire)
	waiting(2)
	give(t, holder, first)
	give(t, one, awaited(t, done))
	give(t, holder, second)
	give(t, both, awaited(t, all))
}

// A process that is woken too late keeps its place before those that came after it.
func TestWaiter_KeepsItsPlace(t *testing.T) {
	t.Parallel()
	prefix := newPrefix(t, redisURL(t))
	holder, w, later := waiter(t, "waiter", redisURL(t), prefix), waiter(t, "waiter", redisURL(t), prefix), waiter(t, "waiter", redisURL(t), prefix)
	subscribe(t, w.inbox)
	subscribe(t, later.inbox)
	client, line := w.inbox.store.client, w.inbox.store.scope("k")+"line:k"
	first := func() []string { return client.ZRange(t.Context(), line, 0, -1).Val() }
	held := locktest.Taken(t, holder, "k")
	done := w.awaits(t)
	second := locktest.Beside(later.acquire)
	locktest.Eventually(t, "both are in the line", func() bool { return len(first()) == 2 })
	client.ZPopMin(t.Context(), line) // woken …
	w.inbox.wakeAll()                 // … and too late
	want := []string{w.Store.(*Waiter).process, later.Store.(*Waiter).process}
	locktest.Eventually(t, "the first is the first again", func() bool { return slices.Equal(first(), want) })
	give(t, holder, held)
	give(t, w, awaited(t, done))
	give(t, later, awaited(t, second))
}

// queued lets n goroutines of w wait for k in order, and release it. The channel has their leases, in the order of the grants.
func (w waits) queued(t *testing.T, n int) <-chan locking.Lease {
	t.Helper()
	granted := make(chan locking.Lease, n)
	var all sync.WaitGroup
	t.Cleanup(all.Wait) // before the cleanup of the stores, which closes their connections
	for i := range n {
		before := w.Store.(*Waiter).queue.Len("k")
		all.Go(func() {
			lease, err := w.acquire()
			if err != nil {
				t.Error(err)
			}
			granted <- lease
			if i < n-1 {
				for end := time.Now().Add(10 * time.Second); !w.passes() && time.Now().Before(end); { // the next one can take it
					time.Sleep(time.Millisecond)
				}
			}
			if err := w.Release(context.WithoutCancel(t.Context()), lease); err != nil {
				t.Error(err)
			}
		})
		locktest.Eventually(t, fmt.Sprintf("waiter %d is in the queue", i), func() bool { return w.Store.(*Waiter).queue.Len("k") == before+1 })
	}
	return granted
}

// A release passes the lock to the next waiter of its process, in the same request, with a fence and a TTL of its own.
func TestWaiter_PassesInOneRequest(t *testing.T) {
	t.Parallel()
	const n = 20
	prefix, p := newPrefix(t, redisURL(t)), locktest.NewProxy(t, hostOf(t, redisURL(t)))
	var requests atomic.Int64
	p.OnRequest(func(b []byte, _, _ net.Conn) bool {
		requests.Add(int64(bytes.Count(b, []byte("evalsha"))))
		return true
	})
	w := waiter(t, "waiter", "redis://"+p.Addr, prefix)
	subscribe(t, w.inbox)
	last := locktest.Taken(t, w, "k")
	granted := w.queued(t, n)
	w.waitsHere(t)
	before, asked := requests.Load(), time.Now()
	give(t, w, last)
	for range n {
		lease := <-granted
		if lease.Fence <= last.Fence || lease.Owner == last.Owner || lease.Until.Before(asked) || time.Until(lease.Until) > time.Minute {
			t.Errorf("%+v after %+v", lease, last)
		}
		last = lease
	}
	locktest.Eventually(t, "the lock is free", func() bool { return free(t, w.inbox.store) })
	if sent := requests.Load() - before; sent != n+1 {
		t.Errorf("%d requests for %d releases", sent, n+1)
	}
}

// waitsHere returns when a release in this process would pass k.
func (w waits) waitsHere(t *testing.T) {
	t.Helper()
	locktest.Eventually(t, "a goroutine waits", w.passes)
}

// passes reports whether a release in this process would pass a lock.
func (w waits) passes() bool {
	s := w.Store.(*Waiter)
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.first) > 0
}

func free(t *testing.T, s *Store) bool {
	t.Helper()
	return s.client.Exists(t.Context(), s.scope("k")+"lock:k").Val() == 0
}

// The goroutines of a process pass the lock to each other only for a short time while another process waits.
func TestWaiter_AProcessKeepsTheLockForOneTurn(t *testing.T) {
	t.Parallel()
	const n = 20
	locktest.Subtests(t, map[string]struct {
		turn            time.Duration
		earliest, later int
	}{"short": {turn, 1, n / 2}, "endless": {time.Hour, n, n}}, func(t *testing.T, test struct {
		turn            time.Duration
		earliest, later int
	},
	) {
		prefix := newPrefix(t, redisURL(t))
		w, other := waiter(t, "waiter", redisURL(t), prefix), waiter(t, "waiter", redisURL(t), prefix)
		w.Store.(*Waiter).turn = test.turn
		subscribe(t, w.inbox)
		subscribe(t, other.inbox)
		held := locktest.Taken(t, w, "k")
		granted := w.queued(t, n)
		w.waitsHere(t)
		before := make(chan int, 1)
		done := locktest.Beside(func() (locking.Lease, error) {
			l, err := other.acquire()
			before <- len(granted)
			return l, err
		})
		locktest.Eventually(t, "both are in the line", func() bool {
			return other.inbox.store.client.ZCard(t.Context(), other.inbox.store.scope("k")+"line:k").Val() == 2
		})
		give(t, w, held)
		give(t, other, awaited(t, done))
		if n := <-before; n < test.earliest || n > test.later {
			t.Errorf("the other process was granted the lock after %d grants, want %d to %d", n, test.earliest, test.later)
		}
		for range n {
			<-granted
		}
		locktest.Eventually(t, "the lock is free", func() bool { return free(t, other.inbox.store) })
	})
}

// The holder releases, and the waiter gives up before the answer comes. The lock that it got is freed.
func TestWaiter_APassThatComesTooLateIsGivenBack(t *testing.T) {
	t.Parallel()
	prefix, p := newPrefix(t, redisURL(t)), locktest.NewProxy(t, hostOf(t, redisURL(t)))
	w, other := waiter(t, "waiter", "redis://"+p.Addr, prefix), waiter(t, "waiter", redisURL(t), prefix)
	subscribe(t, w.inbox)
	held := locktest.Taken(t, w, "k")
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := locktest.Beside(func() (locking.Lease, error) { return w.Store.(*Waiter).Acquire(ctx, "k") })
	w.waitsHere(t)
	answered, deliver := make(chan struct{}, 1), make(chan struct{})
	p.OnReply(func(b []byte, _, _ net.Conn) bool {
		if b[0] == ':' && len(answered) == 0 { // not a message
			answered <- struct{}{}
			<-deliver
		}
		return true
	})
	released := locktest.Beside(func() (struct{}, error) { return struct{}{}, w.Release(t.Context(), held) })
	locktest.Eventually(t, "the server has passed the lock", func() bool { return len(answered) > 0 })
	cancel()
	if o := <-gaveUp; !errors.Is(o.Err, locking.ErrBusy) || !errors.Is(o.Err, context.Canceled) {
		t.Errorf("gave up: %v, want ErrBusy and Canceled", o.Err)
	}
	if free(t, other.inbox.store) {
		t.Error("the lock was not passed")
	}
	close(deliver)
	if o := <-released; o.Err != nil {
		t.Error(o.Err)
	}
	locktest.Eventually(t, "the lock is free", func() bool { return free(t, other.inbox.store) })
}

// The answer to the release is lost. The waiter asks, and finds that the lock was passed to it.
func TestWaiter_APassWithoutAnAnswerIsFound(t *testing.T) {
	t.Parallel()
	prefix, p := newPrefix(t, redisURL(t)), locktest.NewProxy(t, hostOf(t, redisURL(t)))
	w := waiter(t, "waiter", "redis://"+p.Addr, prefix)
	direct := connect(t, redisURL(t), time.Minute)
	subscribe(t, w.inbox)
	give(t, w, locktest.Taken(t, w, "k")) // the server has the script
	held := locktest.Taken(t, w, "k")
	done := locktest.Beside(w.acquire)
	w.waitsHere(t)
	lost := make(chan struct{}, 1)
	p.OnReply(func(b []byte, _, _ net.Conn) bool {
		select {
		case lost <- struct{}{}:
			return false
		default:
			return true
		}
	})
	if err := w.Release(t.Context(), held); !errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("got %v, want ErrOutcomeUnknown", err)
	}
	lease := awaited(t, done)
	if value, err := direct.Get(t.Context(), w.inbox.store.scope("k")+"lock:k").Result(); err != nil || value != fmt.Sprintf("%d:%s", lease.Fence, lease.Owner) {
		t.Errorf("the lock has %q, %v, the lease is %+v", value, err, lease)
	}
	give(t, w, lease)
}
