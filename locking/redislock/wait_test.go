// SPDX-License-Identifier: MIT

package redislock

import (
	"bytes"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/locktest"
	"shop/locking/redislock/redistest"
	"shop/locking/servertest"
)

// waiter makes a Store with another poll. If it is an hour, only a message can end a wait.
func waiter(t *testing.T, url, prefix string, poll time.Duration, change ...func(*locks)) *opened {
	t.Helper()
	d, err := newLocks(connect(t, url, time.Minute), time.Minute, Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	d.markTTL = time.Hour
	for _, f := range change {
		f(d)
	}
	o := Settings(time.Minute)
	o.Pause = locking.Backoff{Base: poll, Max: poll}
	s, err := driver.New(d, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &opened{s, d}
}

// awaits lets w wait for k, which is held, and returns when the server knows that it waits.
func (w *opened) awaits(t *testing.T) <-chan locktest.Outcome[locking.Lease] {
	t.Helper()
	done := locktest.Beside(func() (locking.Lease, error) { return w.Acquire(t.Context(), "k") })
	locktest.Eventually(t, "the server knows the waiter", func() bool {
		return w.client.Exists(t.Context(), w.marks([]string{"k"})...).Val() == 1
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

// subscribed returns when w has a subscription: until then a message is lost, and the subscription itself wakes the waiter.
func (w *opened) subscribed(t *testing.T) {
	t.Helper()
	locktest.Eventually(t, "the subscription", func() bool {
		return w.client.PubSubNumSub(t.Context(), w.channel()).Val()[w.channel()] > 0
	})
	time.Sleep(50 * time.Millisecond) // its wake-up; if it comes later, the test is weaker, not wrong
}

func TestWait_AMessageEndsIt(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t, redistest.URL(t))
	holder, w := waiter(t, redistest.URL(t), prefix, time.Hour), waiter(t, redistest.URL(t), prefix, time.Hour)
	for range 3 {
		held := locktest.Taken(t, holder, "k")
		done := w.awaits(t)
		w.subscribed(t)
		locktest.Released(t, holder, held)
		locktest.Released(t, w, awaited(t, done))
	}
}

// A message may be lost, and the expiry of a lease sends none.
func TestWait_ALostMessageDelaysItForOnePoll(t *testing.T) {
	t.Parallel()
	prefix, p := redistest.Prefix(t, redistest.URL(t)), servertest.NewProxy(t, redistest.Host(t, redistest.URL(t)))
	holder, w := waiter(t, redistest.URL(t), prefix, time.Hour), waiter(t, "redis://"+p.Addr, prefix, 300*time.Millisecond)
	lost := make(chan struct{}, 100)
	p.OnReply(func(b []byte, _, _ net.Conn) bool {
		if !bytes.Contains(b, []byte("\r\nmessage\r\n")) {
			return true
		}
		lost <- struct{}{}
		return false
	})
	held := locktest.Taken(t, holder, "k")
	done := w.awaits(t)
	w.subscribed(t)
	locktest.Released(t, holder, held)
	locktest.Released(t, w, awaited(t, done))
	locktest.Eventually(t, "the message of the release is lost", func() bool { return len(lost) > 0 })
}

// While there is no subscription, messages are lost. A new one wakes all waiters.
func TestWait_ANewSubscriptionWakesAll(t *testing.T) {
	t.Parallel()
	prefix, p := redistest.Prefix(t, redistest.URL(t)), servertest.NewProxy(t, redistest.Host(t, redistest.URL(t)))
	holder, w := waiter(t, redistest.URL(t), prefix, time.Hour), waiter(t, "redis://"+p.Addr, prefix, time.Hour)
	held := locktest.Taken(t, holder, "k")
	done := w.awaits(t)
	w.subscribed(t)
	p.Down()
	locktest.Released(t, holder, held)
	p.Up(t)
	locktest.Released(t, w, awaited(t, done))
}

// A connection whose peer has disappeared accepts writes and receives nothing. The client's
// health check does not notice (PerpetualSoftware/pad pull request 1195).
func TestWait_ASilentSubscriptionIsReplaced(t *testing.T) {
	t.Parallel()
	prefix, p := redistest.Prefix(t, redistest.URL(t)), servertest.NewProxy(t, redistest.Host(t, redistest.URL(t)))
	holder := waiter(t, redistest.URL(t), prefix, time.Hour)
	w := waiter(t, "redis://"+p.Addr, prefix, time.Hour, func(d *locks) { d.silence = 100 * time.Millisecond })
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
	held := locktest.Taken(t, holder, "k")
	done := w.awaits(t)
	w.subscribed(t)
	mu.Lock()
	for c := range subscribed {
		subscribed[c] = false
	}
	mu.Unlock()
	locktest.Released(t, holder, held)
	locktest.Released(t, w, awaited(t, done))
	mu.Lock()
	defer mu.Unlock()
	if len(subscribed) < 2 {
		t.Errorf("%d subscriptions, want a second one", len(subscribed))
	}
}

// A release without a waiter sends no message, and leaves nothing behind but the counter.
func TestWait_WithoutAWaiterThereIsNoMessage(t *testing.T) {
	t.Parallel()
	w := newStore(t, time.Minute)
	sub := w.client.Subscribe(t.Context(), w.channel())
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		locktest.Released(t, w, locktest.Taken(t, w, "k"))
	}
	w.client.Publish(t.Context(), w.channel(), "the end")
	if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Payload != "the end" {
		t.Errorf("received %+v, %v, want no message before the end", m, err)
	}
	names := w.client.Keys(t.Context(), w.Prefix+"*").Val()
	if len(names) != 1 || !strings.HasSuffix(names[0], "}fence") {
		t.Errorf("the keys %q remain", names)
	}
}

// A user who may not subscribe or publish (the default of a new ACL user since Redis 7)
// polls.
func TestWait_WithoutThePermissionItPolls(t *testing.T) {
	t.Parallel()
	url := redistest.User(t, "resetchannels")
	prefix := redistest.Prefix(t, redistest.URL(t))
	holder, w := waiter(t, url, prefix, time.Hour), waiter(t, url, prefix, 50*time.Millisecond)
	held := locktest.Taken(t, holder, "k")
	done := w.awaits(t)
	locktest.WantHeld(t, holder, "k")
	locktest.Released(t, holder, held)
	locktest.Released(t, w, awaited(t, done))
}

// The processes that wait take turns, none of them starves, and one that takes a key in a loop leaves it to the others.
func TestWait_NoProcessStarves(t *testing.T) {
	locktest.Slow(t, "three processes contend for two seconds")
	t.Parallel()
	const processes = 3
	prefix := redistest.Prefix(t, redistest.URL(t))
	var all sync.WaitGroup
	var grants [processes]int
	end := time.Now().Add(2 * time.Second)
	for i := range processes {
		s := storeAt(t, redistest.URL(t), time.Minute, Options{Prefix: prefix})
		all.Go(func() {
			for time.Now().Before(end) {
				lease, err := s.Acquire(t.Context(), "k")
				if err != nil {
					t.Error(err)
					return
				}
				grants[i]++
				locktest.Released(t, s, lease)
			}
		})
	}
	all.Wait()
	for i, n := range grants {
		if n < 20 {
			t.Errorf("process %d was granted the key %d times, of %v", i, n, grants)
		}
	}
	t.Log(grants)
}
