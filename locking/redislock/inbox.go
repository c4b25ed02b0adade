package redislock

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// poll is how long a waiter waits for a message before it sends its next request. Redis
// does not repeat a message, and sends none when a lease expires.
const poll = 250 * time.Millisecond

// silence is how long the subscription may receive nothing before it is checked.
const silence = 2 * time.Second

// inbox wakes the waiters of a process. It subscribes to one channel at the first wait,
// and keeps the subscription: one for each wait would be slower than the wait, and would
// miss the message that comes before it. A message begins with the name of what a waiter waits for. One that
// is no more than that is a hint: the waiter sends a request, as it does every poll without a message.
type inbox struct {
	store       *Store
	channel     string
	name        func(message string) string // with which a message begins
	poll        time.Duration
	silence     time.Duration
	subscribing sync.Once
	life        context.Context // ends with close
	end         context.CancelFunc

	mu    sync.Mutex
	woken map[string]chan string // by the name for which one waiter waits: a message, or "" if one may have been lost
	lined map[string]time.Time   // for which a wake-up is due to the next waiter, and since when this process has the lock
}

func newInbox(s *Store, name string) *inbox {
	i := &inbox{
		store: s, channel: s.prefix + "{" + s.tag + "}wake" + name, name: func(m string) string { return m }, poll: poll, silence: silence,
		woken: map[string]chan string{}, lined: map[string]time.Time{},
	}
	i.life, i.end = context.WithCancel(context.Background())
	return i
}

// add makes a message with one of the names wake the caller. Each name has one waiter at most.
func (i *inbox) add(names ...string) (woken <-chan string) {
	c := make(chan string, 1)
	i.mu.Lock()
	for _, name := range names {
		i.woken[name] = c
	}
	i.mu.Unlock()
	i.subscribing.Do(func() { i.store.resolver.Go(i.listen) }) // a new subscription wakes the caller too
	return c
}

func (i *inbox) remove(names ...string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, name := range names {
		delete(i.woken, name)
	}
}

// enter notes that the server will wake this process for names, of which it has had the locks since a time. The waiter
// that is the next may not have called add yet.
func (i *inbox) enter(since time.Time, names ...string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, name := range names {
		i.lined[name] = since
	}
}

// inLine reports whether the wake-up for each of names, once entered, is still due. add goes before, so that
// the caller cannot miss it.
func (i *inbox) inLine(names ...string) (since time.Time, due bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	due = true
	for _, name := range names {
		at, is := i.lined[name]
		since, due = at, due && is
		delete(i.lined, name)
	}
	return since, due
}

// wake wakes the waiters for names.
func (i *inbox) wake(names ...string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, name := range names {
		delete(i.lined, name)
		notify(i.woken[name], "")
	}
}

// deliver gives a message to the waiter for its name.
func (i *inbox) deliver(message string) {
	name := i.name(message)
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.lined, name)
	notify(i.woken[name], message)
}

func (i *inbox) wakeAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	clear(i.lined)
	for _, c := range i.woken {
		notify(c, "")
	}
}

func notify(c chan string, message string) {
	select {
	case c <- message:
	default: // no waiter, or it was woken already and sends a request
	}
}

// wait returns when a waiter has a message, or has to send its next request, or with the error of ctx.
func (i *inbox) wait(ctx context.Context, woken <-chan string) (message string, err error) {
	select {
	case message = <-woken:
	case <-time.After(i.poll):
	case <-i.life.Done(): // the request returns ErrClosed
	case <-ctx.Done():
	}
	return message, ctx.Err()
}

// listen receives messages until close. While there is no subscription, the waiters poll.
func (i *inbox) listen() {
	for i.life.Err() == nil {
		_ = i.receive()
		select {
		case <-time.After(poll):
		case <-i.life.Done():
		}
	}
}

// receive wakes waiters until the subscription fails.
//
// A connection whose peer has disappeared fails only when something is written, and a ping
// of go-redis does not wait for its answer. So after two silences, with a ping between
// them, the connection is given up.
func (i *inbox) receive() error {
	sub := i.store.client.Subscribe(i.life, i.channel)
	defer sub.Close()
	defer context.AfterFunc(i.life, func() { _ = sub.Close() })() // ends the read
	for pinged := false; ; {
		received, err := sub.ReceiveTimeout(i.life, i.silence)
		var timer net.Error
		switch {
		case err == nil:
			pinged = false
		case !pinged && errors.As(err, &timer) && timer.Timeout():
			pinged, err = true, sub.Ping(i.life)
		}
		if err != nil {
			return err
		}
		switch m := received.(type) {
		case *redis.Subscription:
			i.wakeAll() // messages may have been lost before
		case *redis.Message:
			i.deliver(m.Payload)
		}
	}
}

// close ends the subscription.
func (i *inbox) close() { i.end() }
