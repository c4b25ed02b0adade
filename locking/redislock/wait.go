package redislock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
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
	return &Waiter{Store: s, inbox: newInbox(s), await: redis.NewScript(awaitLua), release: redis.NewScript(wakeLua)}, nil
}

// Acquire waits for all keys: in this process in the order of arrival, among the processes
// in any order. A key that expires, or whose message is lost, is requested again within a
// quarter of a second.
//
// If ctx ends first, the error matches ctx.Err(), and locking.ErrBusy too if another
// holder had a key.
func (w *Waiter) Acquire(ctx context.Context, keys ...string) (lease locking.Lease, err error) {
	if _, err = w.check(ctx, keys); err != nil {
		describe(&err, "acquire", keys)
		return lease, err
	}
	keys, _ = locking.SortedKeys(keys)
	ticket, _ := w.queue.Join(nil, keys...)
	if !ticket.Wait(ctx) {
		return lease, gaveUp(ctx, keys)
	}
	defer ticket.Leave(keys...)
	if !ticket.Waited { // else the waiter before this one has just taken the keys
		if lease, err = w.TryAcquire(ctx, keys...); !errors.Is(err, locking.ErrBusy) {
			return lease, err
		}
	}
	locks, _ := w.names(keys)
	woken := w.inbox.add(locks...)
	defer w.inbox.remove(locks...)
	for {
		if !w.mark(ctx, keys, locks) {
			if w.inbox.wait(ctx, woken) != nil {
				return lease, gaveUp(ctx, keys)
			}
		}
		lease, err = w.TryAcquire(ctx, keys...)
		switch {
		case err != nil && ctx.Err() != nil:
			return lease, fmt.Errorf("%w: %w", locking.ErrBusy, err)
		case !errors.Is(err, locking.ErrBusy):
			return lease, err
		}
	}
}

// gaveUp is the error of a waiter whose ctx has ended.
func gaveUp(ctx context.Context, keys []string) error {
	err := fmt.Errorf("%w: %w", locking.ErrBusy, ctx.Err())
	describe(&err, "acquire", keys)
	return err
}

// mark makes the release of the locks that are held send a message. It reports whether
// none is: then the release came before the mark. A mark outlives several polls.
func (w *Waiter) mark(ctx context.Context, keys, locks []string) (free bool) {
	n, err := w.send(ctx, w.await, append(locks[:len(locks):len(locks)], w.marks(keys)...), (4 * w.inbox.poll).Milliseconds())
	return err == nil && n == 1
}

// Release frees the keys, as that of Store does, and wakes their waiters.
func (w *Waiter) Release(ctx context.Context, l locking.Lease) (err error) {
	defer describe(&err, "release", l.Keys)
	locks, _ := w.names(l.Keys)
	defer w.inbox.wake(locks...) // those of this process need no message
	held, err := w.send(ctx, w.release, append(locks[:len(locks):len(locks)], w.marks(l.Keys)...), value(l), l.Owner, w.inbox.channel)
	return w.released(l, held, err, w.removal(locks, l.Owner))
}

// marks returns the names of the marks of keys.
func (w *Waiter) marks(keys []string) []string {
	marks := make([]string, len(keys))
	for i, key := range keys {
		marks[i] = w.scope(key) + "wait:" + key
	}
	return marks
}

// Close ends the subscription and the background work, and waits for them, at most as long
// as for one answer. It releases no locks.
func (w *Waiter) Close() {
	w.inbox.close()
	w.Store.Close()
}
