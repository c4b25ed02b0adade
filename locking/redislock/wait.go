package redislock

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
)

//go:embed await.lua
var awaitLua string

//go:embed wake.lua
var wakeLua string

var _ locking.Waiter = (*Waiter)(nil)

// Waiter is a Store in which a release wakes the waiters, with a message, so that they
// need not poll. A Waiter and a Store with the same Options exclude each other, but a
// Store wakes no waiter.
type Waiter struct {
	*Store
	process        string // random: each Waiter is a process of its own
	channel        string // begins the channel of each process
	inbox          *inbox
	queue          locking.Queue[string] // of this process: only the first waiter for a key sends requests
	await, release *redis.Script
}

// NewWaiter makes a Waiter whose leases last ttl; see New. The first wait opens one
// connection, for messages.
func NewWaiter(client redis.UniversalClient, ttl time.Duration, o Options) (*Waiter, error) {
	s, err := New(client, ttl, o)
	if err != nil {
		return nil, err
	}
	process, all := rand.Text(), newInbox(s, "").channel+":"
	return &Waiter{
		Store: s, process: process, channel: all, inbox: newInbox(s, ":"+process),
		await: awaitScript(acquireLua, awaitLua), release: redis.NewScript(wakeLua),
	}, nil
}

func awaitScript(acquire, await string) *redis.Script {
	return redis.NewScript("local function take()\n" + acquire + "\nend\n" + await)
}

// Acquire waits for all keys: in this process in the order of arrival, and the processes
// that wait are woken in the order in which they began to wait. A process that comes at the
// moment of a release may be faster than the one that is woken. A key that expires, or whose
// message is lost, is requested again within a quarter of a second.
//
// If ctx ends first, the error matches ctx.Err(), and locking.ErrBusy too if another
// holder had a key.
func (w *Waiter) Acquire(ctx context.Context, keys ...string) (lease locking.Lease, err error) {
	defer describe(&err, "acquire", keys)
	if keys, err = w.check(ctx, keys); err != nil {
		return lease, err
	}
	ticket, _ := w.queue.Join(nil, keys...)
	if !ticket.Wait(ctx) {
		return lease, gaveUp(ctx, locking.ErrBusy)
	}
	defer ticket.Leave(keys...)
	r := w.request(keys)
	if !ticket.Waited { // else the waiter before this one has just taken the keys
		if lease, _, err = w.acquire(ctx, w.scripts.acquire, keys, r.locks, r.names); !errors.Is(err, locking.ErrBusy) {
			return lease, err
		}
	}
	woken := w.inbox.add(r.locks...)
	defer w.inbox.remove(r.locks...)
	err = locking.ErrBusy
	if !ticket.Waited || !w.inbox.inLine(r.locks...) {
		lease, err = r.takeOrWait(ctx)
	}
	for errors.Is(err, locking.ErrBusy) && w.inbox.wait(ctx, woken) == nil {
		lease, err = r.takeOrWait(ctx)
	}
	if err != nil && ctx.Err() != nil {
		w.leave(keys)
		return lease, gaveUp(ctx, err)
	}
	return lease, err
}

// gaveUp is the error of a waiter whose ctx has ended.
func gaveUp(ctx context.Context, err error) error {
	if errors.Is(err, locking.ErrBusy) {
		return fmt.Errorf("%w: %w", err, ctx.Err())
	}
	return fmt.Errorf("%w: %w", locking.ErrBusy, err)
}

// waiting is the request of the first waiter of this process.
type waiting struct {
	*Waiter
	keys, locks, names, lines []string
	place                     int64 // of this process in the lines; 0: none yet
}

func (w *Waiter) request(keys []string) *waiting {
	locks, names := w.names(keys)
	return &waiting{Waiter: w, keys: keys, locks: locks, names: names, lines: w.lines(keys)}
}

// takeOrWait takes the keys, or puts this process into their lines. A grant puts it there too,
// for the next of its waiters: that one then sends no request before it is woken.
func (r *waiting) takeOrWait(ctx context.Context) (lease locking.Lease, err error) {
	again := 0
	if slices.ContainsFunc(r.keys, func(key string) bool { return r.queue.Len(key) > 1 }) {
		again = 1
	}
	lease, reply, err := r.acquire(ctx, r.await, r.keys, r.locks, append(r.names, r.lines...),
		r.process, r.place, (4 * r.inbox.poll).Milliseconds(), again)
	switch {
	case err == nil && again == 1:
		r.inbox.enter(r.locks...)
	case errors.Is(err, locking.ErrBusy):
		r.place = -reply
	}
	return lease, err
}

// leave takes this process out of the lines of keys, unless others of its goroutines wait for
// them. Until that is done, a release may wake this process in vain, and the others poll.
func (w *Waiter) leave(keys []string) {
	if slices.ContainsFunc(keys, func(key string) bool { return w.queue.Len(key) > 1 }) {
		return
	}
	w.resolver.Abandon(func(ctx context.Context) (err error) {
		for _, line := range w.lines(keys) {
			err = cmp.Or(err, w.client.ZRem(ctx, line, w.process).Err())
		}
		return err
	})
}

// Release frees the keys, as that of Store does, and wakes the first process in the line of
// each.
func (w *Waiter) Release(ctx context.Context, l locking.Lease) (err error) {
	defer describe(&err, "release", l.Keys)
	locks, _ := w.names(l.Keys)
	waits, counts := 0, 1
	if slices.ContainsFunc(l.Keys, func(key string) bool { return w.queue.Len(key) > 0 }) {
		waits = 1
	}
	if w.cluster {
		counts = 0
	}
	reply, err := w.send(ctx, w.release, append(locks[:len(locks):len(locks)], w.lines(l.Keys)...), value(l), l.Owner, w.process, waits, w.channel, counts)
	if err != nil || reply%2 == 1 {
		w.inbox.wake(locks...)
	}
	return w.released(l, reply/2, err, w.removal(locks, l.Owner))
}

// lines returns the names of the lines of keys.
func (w *Waiter) lines(keys []string) []string {
	lines := make([]string, len(keys))
	for i, key := range keys {
		lines[i] = w.scope(key) + "line:" + key
	}
	return lines
}

// Close ends the subscription and the background work, and waits for them, at most as long
// as for one answer. It releases no locks.
func (w *Waiter) Close() {
	w.inbox.close()
	w.Store.Close()
}
