package redislock

import (
	"bytes"
	"context"
	"net"
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
		waiting := func(space string) int64 { return client.ZCount(t.Context(), scope+space+":k", "1e14", "+inf").Val() }
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
		url := newUser(t, "resetchannels")
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

// newUser makes a user who may do everything except what the rules forbid.
func newUser(t *testing.T, rules ...any) (url string) {
	t.Helper()
	user := strings.ToLower(newPrefix(t, redisURL(t)))
	rules = append([]any{"ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all"}, rules...)
	if err := connect(t, redisURL(t), time.Minute).Do(t.Context(), rules...).Err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { redisDo(t, "ACL", "DELUSER", user) })
	return "redis://" + user + ":secret@" + hostOf(t, redisURL(t))
}

func redisDo(t *testing.T, args ...any) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: hostOf(t, redisURL(t))})
	defer client.Close()
	if err := client.Do(context.Background(), args...).Err(); err != nil { // t.Context() has ended in a cleanup
		t.Error(err)
	}
}
