package redislock

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
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
	turn           time.Duration

	mu    sync.Mutex
	first map[string]*waiting // by lock: to which a release in this process may pass it
}

// turn is how long the goroutines of a process may pass a lock to each other, while other processes wait. A
// pass within a process is one request; to another process it takes two and a message.
const turn = 2 * time.Millisecond

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
		await: redis.NewScript(withTake(awaitLua)), release: redis.NewScript(withTake(wakeLua)), first: map[string]*waiting{}, turn: turn,
	}, nil
}

// withTake puts acquire.lua before a script, as its function take.
func withTake(script string) string {
	return "local function take()\n" + acquireLua + "\nend\n" + script
}

// Acquire waits for all keys: in this process in the order of arrival, and the processes
// that wait get their turns in the order in which they began to wait. In its turn a process may grant
// a key to several of its waiters, for 2 ms at most if others wait. A process that comes at the
// moment of a release may be faster than the one that is woken. A key that expires before
// its release, or whose message is lost, is requested again within a quarter of a second.
//
// If ctx ends first, the error matches ctx.Err(), and locking.ErrBusy too if another
// holder had a key, or another request of this process waited for it in front.
func (w *Waiter) Acquire(ctx context.Context, keys ...string) (lease locking.Lease, err error) {
	defer describe(&err, "acquire", keys)
	if keys, err = w.check(ctx, keys); err != nil {
		return lease, err
	}
	r := w.request(keys)
	ticket, _ := w.queue.Join(nil, keys...)
	if !ticket.Wait(ctx) {
		r.last()
		return lease, gaveUp(ctx, locking.ErrBusy)
	}
	defer r.last()
	defer ticket.Leave(keys...)
	if !ticket.Waited { // else the waiter before this one has just taken the keys
		if lease, err = w.tryAcquire(ctx, keys); !errors.Is(err, locking.ErrBusy) {
			return lease, err
		}
	}
	r.owner = newOwner()
	woken := w.inbox.add(r.locks...)
	defer w.inbox.remove(r.locks...)
	err = locking.ErrBusy
	due := false
	if r.since, due = w.inbox.inLine(r.locks...); !ticket.Waited || !due {
		lease, err = r.takeOrWait(ctx)
	}
	for errors.Is(err, locking.ErrBusy) {
		if lease, passed := r.wait(ctx, woken); passed {
			return lease, nil
		}
		if ctx.Err() != nil {
			break
		}
		lease, err = r.takeOrWait(ctx)
	}
	if err != nil {
		r.leave()
	}
	if err != nil && ctx.Err() != nil {
		err = gaveUp(ctx, err)
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

// waiting is the request of the first waiter of this process for its keys.
type waiting struct {
	*Waiter
	owner                     string
	keys, locks, names, lines []string
	place                     int64              // of this process in the lines; 0: none yet
	since                     time.Time          // since when this process has had the lock; zero: another may have it
	passed                    chan locking.Lease // closed without a lease if there is none
	unsure                    bool               // a request without an answer may still take the lock for owner
}

func (w *Waiter) request(keys []string) *waiting {
	locks, names := w.names(keys)
	return &waiting{Waiter: w, keys: keys, locks: locks, names: names, lines: w.lines(keys)}
}

// wait waits until the next request should be sent, or until a release in this process has passed the lock to it.
func (r *waiting) wait(ctx context.Context, woken <-chan string) (lease locking.Lease, passed bool) {
	r.passed = make(chan locking.Lease, 1)
	if len(r.keys) == 1 {
		r.mu.Lock()
		r.first[r.locks[0]] = r
		r.mu.Unlock()
	}
	_, _ = r.inbox.wait(ctx, woken)
	if r.claim(r.locks) == r || len(r.keys) > 1 {
		return lease, false
	}
	select { // the release is under way, or has ended
	case lease, passed = <-r.passed:
		r.unsure = r.unsure || !passed
	case <-ctx.Done():
		r.resolver.Go(r.giveBack)
	}
	return lease, passed
}

// claim returns the waiter to which the lock may be passed, once; nil: none.
func (w *Waiter) claim(locks []string) *waiting {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(locks) != 1 {
		return nil
	}
	r := w.first[locks[0]]
	delete(w.first, locks[0])
	return r
}

// giveBack frees a lock that is passed to a waiter that has given up.
func (r *waiting) giveBack() {
	if lease, passed := <-r.passed; passed {
		_ = r.Release(context.WithoutCancel(r.inbox.life), lease)
		r.last()
	} else {
		r.resolver.Abandon(r.removal(r.locks, r.owner))
	}
}

// takeOrWait takes the keys, or puts this process into their lines. A grant puts it there too,
// for the next of its waiters: that one then sends no request before it is woken. The answer "busy" is kept from
// the Resolver, which would remove a later grant of this owner if an earlier request had no answer.
func (r *waiting) takeOrWait(ctx context.Context) (lease locking.Lease, err error) {
	var busy error
	again := r.behind(1)
	err = r.resolver.Acquire(ctx, func() (err error) {
		var reply int64
		lease, reply, err = r.take(ctx, r.await, r.owner, r.keys, len(r.locks), append(r.names, r.lines...), r.process, r.place, r.lasts(), again, r.channel)
		r.unsure = r.unsure || errors.Is(err, locking.ErrOutcomeUnknown)
		if errors.Is(err, locking.ErrBusy) {
			busy, err = err, nil
			if reply < 0 { // else the slot is moving, and this process keeps its place
				r.place = -reply
			}
		}
		return err
	}, r.removal(r.locks, r.owner))
	if err = cmp.Or(err, busy); err != nil {
		return locking.Lease{}, err
	}
	for i, behind := range again {
		if behind == '1' {
			r.inbox.enter(time.Now(), r.locks[i])
		}
	}
	return lease, nil
}

// behind returns for each key 1 if more than n goroutines of this process are in its queue, else 0.
func (r *waiting) behind(n int) string {
	bits := make([]byte, len(r.keys))
	for i, key := range r.keys {
		bits[i] = '0'
		if r.queue.Len(key) > n {
			bits[i] = '1'
		}
	}
	return string(bits)
}

// lasts is how long a line lasts, in milliseconds, unless a process enters it again.
func (w *Waiter) lasts() int64 { return (4 * w.inbox.poll).Milliseconds() }

// leave takes this process out of the lines, unless others of its goroutines wait. Until that is done, a release may
// wake this process in vain, and the others poll. It also frees what a request without an answer may have taken.
func (r *waiting) leave() {
	if r.unsure {
		r.resolver.Abandon(r.removal(r.locks, r.owner))
	}
	if !strings.Contains(r.behind(1), "1") {
		r.remove(r.lines...)
	}
}

// last takes this process out of the lines in which a grant has put it for a next waiter, if that has given up.
func (r *waiting) last() {
	for i, behind := range r.behind(0) {
		if behind == '1' {
			continue
		}
		if _, due := r.inbox.inLine(r.locks[i]); due {
			r.remove(r.lines[i])
		}
	}
}

func (r *waiting) remove(lines ...string) {
	r.resolver.Abandon(func(ctx context.Context) (err error) {
		for _, line := range lines {
			err = cmp.Or(err, r.client.ZRem(ctx, line, r.process).Err())
		}
		return err
	})
}

// Release frees the keys, as that of Store does, and wakes the first process in the line of
// each. If that is this process, its next waiter has the key at once.
func (w *Waiter) Release(ctx context.Context, l locking.Lease) (err error) {
	defer describe(&err, "release", l.Keys)
	r, counts, owner := w.request(l.Keys), 1, ""
	if w.cluster {
		counts = 0
	}
	next := w.claim(r.locks)
	if next == nil && r.behind(0) == "1" {
		runtime.Gosched() // the grant of l has just let the next waiter begin
		next = w.claim(r.locks)
	}
	keeps := 0
	if next != nil {
		owner = next.owner
		defer close(next.passed)
		if time.Since(next.since) < w.turn {
			keeps = 1
		}
	}
	again, sent := r.behind(1), time.Now()
	reply, err := w.send(ctx, w.release, append(r.names, r.lines...), owner, w.ttl.Milliseconds(), len(r.locks),
		w.process, r.behind(0), w.lasts(), again, value(l), l.Owner, w.channel, counts, keeps)
	held := reply / 2
	switch {
	case err == nil && reply < 0:
		held = 1
		w.inbox.wake(r.locks...) // it waits for passed then
		if keeps == 0 {
			next.since = sent
		}
		if again == "1" {
			w.inbox.enter(next.since, r.locks...)
		}
		next.passed <- locking.Lease{Keys: next.keys, Owner: owner, Fence: locking.Fence(-reply), Until: sent.Add(w.trust)}
	// next != nil && held == 0: the lock was lost, and may be free. next asks.
	case err != nil || reply%2 == 1 || next != nil && held == 0:
		w.inbox.wake(r.locks...)
	}
	return w.released(l, held, err, w.removal(r.locks, l.Owner))
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
