package redislock

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
)

// waits is a store of one of the kinds whose waiters depend on messages.
type waits struct {
	locking.Store
	acquire func() (locking.Lease, error) // waits for k
	inbox   *inbox
}

// waiter makes a store of a kind, with a poll so long that only a message can end the wait.
func waiter(t *testing.T, kind, url, prefix string) waits {
	t.Helper()
	s, err := kinds[kind](connect(t, url, time.Minute), time.Minute, Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	w := waits{Store: s, acquire: func() (locking.Lease, error) {
		return s.(locking.Waiter).Acquire(t.Context(), "k")
	}}
	switch s := s.(type) {
	case *Waiter:
		w.inbox = s.inbox
	case *QueueStore:
		w.inbox, s.ticketTTL = s.inbox, time.Hour
	}
	w.inbox.poll = time.Hour
	return w
}

// subscribe returns when the subscription of i has woken all its waiters, so that later
// only a message can wake them.
func subscribe(t testing.TB, i *inbox) {
	t.Helper()
	woken := i.add("nothing")
	defer i.remove("nothing")
	select {
	case <-woken:
	case <-time.After(20 * time.Second):
		t.Fatal("no subscription within 20 s")
	}
}

// awaits lets w wait for k, which is held, and returns when the server knows that it waits.
func (w waits) awaits(t *testing.T) <-chan locktest.Outcome[locking.Lease] {
	t.Helper()
	client := w.inbox.store.client
	done := locktest.Beside(w.acquire)
	locktest.Eventually(t, "the server knows the waiter", func() bool {
		scope := w.inbox.store.scope("k")
		waiting := func(space string) int64 { return client.ZCount(t.Context(), scope+space+":k", "(0", "+inf").Val() }
		return client.ZCard(t.Context(), scope+"line:k").Val()+waiting("queue")+waiting("permits") > 0
	})
	return done
}

func awaited(t *testing.T, done <-chan locktest.Outcome[locking.Lease]) locking.Lease {
	t.Helper()
	select {
	case o := <-done:
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		return o.Reply
	case <-time.After(20 * time.Second):
		t.Fatal("the waiter is still waiting 20 s after the release")
	}
	return locking.Lease{}
}

func give(t *testing.T, s locking.Store, l locking.Lease) {
	t.Helper()
	if err := s.Release(t.Context(), l); err != nil {
		t.Fatal(err)
	}
}

// each runs a test with each kind of store that waits.
func each(t *testing.T, test func(t *testing.T, kind string)) {
	t.Parallel()
	names := map[string]string{}
	for kind := range kinds {
		names[kind] = kind
	}
	locktest.Subtests(t, names, test)
}

func TestWait_AMessageEndsIt(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		prefix := newPrefix(t, redisURL(t))
		holder, w := waiter(t, kind, redisURL(t), prefix), waiter(t, kind, redisURL(t), prefix)
		subscribe(t, w.inbox)
		for range 3 {
			held := locktest.Taken(t, holder, "k")
			done := w.awaits(t)
			give(t, holder, held)
			give(t, w, awaited(t, done))
		}
	})
}

// A message may be lost, and the expiry of a lease sends none.
func TestWait_ALostMessageDelaysItForOnePoll(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		prefix, p := newPrefix(t, redisURL(t)), locktest.NewProxy(t, hostOf(t, redisURL(t)))
		holder, w := waiter(t, kind, redisURL(t), prefix), waiter(t, kind, "redis://"+p.Addr, prefix)
		w.inbox.poll = 300 * time.Millisecond
		lost := make(chan struct{}, 100)
		p.OnReply(func(b []byte, _, _ net.Conn) bool {
			if !bytes.Contains(b, []byte("\r\nmessage\r\n")) {
				return true
			}
			lost <- struct{}{}
			return false
		})
		subscribe(t, w.inbox)
		held := locktest.Taken(t, holder, "k")
		done := w.awaits(t)
		give(t, holder, held)
		give(t, w, awaited(t, done))
		locktest.Eventually(t, "the message of the release is lost", func() bool { return len(lost) > 0 })
	})
}

// While there is no subscription, messages are lost. A new one wakes all waiters.
func TestWait_ANewSubscriptionWakesAll(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		prefix, p := newPrefix(t, redisURL(t)), locktest.NewProxy(t, hostOf(t, redisURL(t)))
		holder, w := waiter(t, kind, redisURL(t), prefix), waiter(t, kind, "redis://"+p.Addr, prefix)
		subscribe(t, w.inbox)
		held := locktest.Taken(t, holder, "k")
		done := w.awaits(t)
		p.Down()
		give(t, holder, held)
		p.Up(t)
		give(t, w, awaited(t, done))
	})
}

// A connection whose peer has disappeared accepts writes and receives nothing. The client's
// health check does not notice (PerpetualSoftware/pad pull request 1195).
func TestWait_ASilentSubscriptionIsReplaced(t *testing.T) {
	t.Parallel()
	prefix, p := newPrefix(t, redisURL(t)), locktest.NewProxy(t, hostOf(t, redisURL(t)))
	holder, w := waiter(t, "fair", redisURL(t), prefix), waiter(t, "fair", "redis://"+p.Addr, prefix)
	w.inbox.silence = 100 * time.Millisecond
	var mu sync.Mutex
	subscribed := map[net.Conn]bool{} // false: its replies are lost
	p.OnRequest(func(b []byte, client, _ net.Conn) bool {
		mu.Lock()
		defer mu.Unlock()
		if bytes.Contains(b, []byte("subscribe")) {
			subscribed[client] = true
		}
		return true
	})
	p.OnReply(func(_ []byte, client, _ net.Conn) bool {
		mu.Lock()
		defer mu.Unlock()
		alive, is := subscribed[client]
		return alive || !is
	})
	subscribe(t, w.inbox)
	held := locktest.Taken(t, holder, "k")
	done := w.awaits(t)
	mu.Lock()
	for c := range subscribed {
		subscribed[c] = false
	}
	mu.Unlock()
	give(t, holder, held)
	give(t, w, awaited(t, done))
	mu.Lock()
	defer mu.Unlock()
	if len(subscribed) < 2 {
		t.Errorf("%d subscriptions, want a second one", len(subscribed))
	}
}

// A release without a waiter sends no message, and leaves nothing behind but the counter.
func TestWait_WithoutAWaiterThereIsNoMessage(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		w := waiter(t, kind, redisURL(t), newPrefix(t, redisURL(t)))
		client, channel := connect(t, redisURL(t), time.Minute), w.inbox.channel
		sub := client.Subscribe(t.Context(), channel)
		defer sub.Close()
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			give(t, w, locktest.Taken(t, w, "k"))
		}
		client.Publish(t.Context(), channel, "the end")
		if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Payload != "the end" {
			t.Errorf("received %+v, %v, want no message before the end", m, err)
		}
		names := client.Keys(t.Context(), w.inbox.store.prefix+"*").Val()
		if len(names) != 1 || !strings.HasSuffix(names[0], "}fence") {
			t.Errorf("the keys %q remain", names)
		}
	})
}

// A user who may not subscribe or publish (the default of a new ACL user since Redis 7)
// polls.
func TestWait_WithoutThePermissionItPolls(t *testing.T) {
	each(t, func(t *testing.T, kind string) {
		admin, user := connect(t, redisURL(t), time.Minute), strings.ToLower(newPrefix(t, redisURL(t)))
		if err := admin.Do(t.Context(), "ACL", "SETUSER", user, "on", ">secret", "~*", "+@all", "resetchannels").Err(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { redisDo(t, "ACL", "DELUSER", user) })
		url := "redis://" + user + ":secret@" + hostOf(t, redisURL(t))
		prefix := newPrefix(t, redisURL(t))
		holder, w := waiter(t, kind, url, prefix), waiter(t, kind, url, prefix)
		w.inbox.poll = 50 * time.Millisecond
		held := locktest.Taken(t, holder, "k")
		done := locktest.Beside(w.acquire)
		locktest.WantHeld(t, holder, "k")
		give(t, holder, held)
		give(t, w, awaited(t, done))
	})
}

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
			w.release = edited(t, wakeLua, "wake(KEYS[locks + i],", "wake(KEYS[locks + i] .. 'x',")
		},
		"no message": func(w *Waiter) { w.release = edited(t, wakeLua, "redis.pcall('PUBLISH', channel .. first, lock)", "1") },
	}, func(t *testing.T, edit func(*Waiter)) {
		prefix := newPrefix(t, redisURL(t))
		holder, w := waiter(t, "waiter", redisURL(t), prefix), waiter(t, "waiter", redisURL(t), prefix)
		edit(holder.Store.(*Waiter))
		subscribe(t, w.inbox)
		held := locktest.Taken(t, holder, "k")
		done := w.awaits(t)
		give(t, holder, held)
		select {
		case o := <-done:
			t.Errorf("granted: %+v", o)
		case <-time.After(time.Second):
		}
		w.inbox.wakeAll()
		give(t, w, awaited(t, done))
	})
}

// Processes that wait are woken in turn. If the last to wait is woken, two of three processes pass the lock to each other.
func TestWaiter_ProcessesTakeTurns(t *testing.T) {
	t.Parallel()
	locktest.Subtests(t, map[string]struct {
		pop  string
		fair bool
	}{"the first": {"ZPOPMIN", true}, "the last": {"ZPOPMAX", false}}, func(t *testing.T, test struct {
		pop  string
		fair bool
	},
	) {
		const turns, hold, pause = 60, 5 * time.Millisecond, time.Millisecond
		prefix := newPrefix(t, redisURL(t))
		var grants [3]int
		var all sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		total := 0 // the lock guards it, and grants
		for i := range grants {
			w := waiter(t, "waiter", redisURL(t), prefix).Store.(*Waiter)
			w.release = redis.NewScript(strings.ReplaceAll(wakeLua, "ZPOPMIN", test.pop))
			subscribe(t, w.inbox)
			all.Go(func() {
				for ctx.Err() == nil {
					lease, err := w.Acquire(ctx, "k")
					if err != nil {
						if ctx.Err() == nil {
							t.Error(err)
						}
						return
					}
					time.Sleep(hold)
					grants[i]++
					if total++; total == turns {
						stop()
					}
					if err := w.Release(t.Context(), lease); err != nil {
						t.Error(err)
					}
					time.Sleep(pause) // else this process may be faster than the one that is woken
				}
			})
		}
		all.Wait()
		fewest, most := min(grants[0], grants[1], grants[2]), max(grants[0], grants[1], grants[2])
		if fair := 2*fewest >= most; fair != test.fair {
			t.Errorf("the processes were granted the lock %v times: fair is %v, want %v", grants, fair, test.fair)
		}
	})
}

// A process that was killed, and one that has given up, delay nobody.
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

func redisDo(t *testing.T, args ...any) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: hostOf(t, redisURL(t))})
	defer client.Close()
	if err := client.Do(context.Background(), args...).Err(); err != nil { // t.Context() has ended in a cleanup
		t.Error(err)
	}
}
