package redislock

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
)

//go:embed queue.lua
var queueLua string

//go:embed open.lua
var openLua string

//go:embed take.lua
var takeLua string

//go:embed keep.lua
var keepLua string

//go:embed close.lua
var closeLua string

//go:embed leave.lua
var leaveLua string

var _ locking.Waiter = (*QueueStore)(nil)

// QueueStore is a Store that grants its keys in the order of the requests. Acquire waits
// in a queue at the server. TryAcquire does not overtake its waiters. NewFair,
// NewRW and NewSemaphore make it.
type QueueStore struct {
	store     *Store
	process   string // random: each QueueStore is a process of its own, and the two of an RW are one
	channel   string // begins the channel of each process
	inbox     *inbox
	mode      string        // begins the owners of this store
	space     string        // begins the names of its keys
	limit     int           // of shared leases of a key at once
	ticketTTL time.Duration // how long the ticket of a waiter that sends no requests is kept, at most
	scripts   queueScripts
}

// The modes: an exclusive lease, and one beside others.
const (
	exclusive = "x"
	shared    = "s"
)

type queueScripts struct{ take, keep, leave, release *redis.Script }

// source is the Lua code of the scripts.
type source struct{ open, close, queue, take, keep, leave string }

var original = source{openLua, closeLua, queueLua, takeLua, keepLua, leaveLua}

func (s source) scripts() queueScripts {
	return queueScripts{
		take: redis.NewScript(s.open + s.queue + s.take), keep: redis.NewScript(s.queue + s.keep),
		leave: redis.NewScript(s.queue + s.leave), release: redis.NewScript(s.close + s.queue + s.leave),
	}
}

// newQueueStore makes a QueueStore. A ticket lasts twelve polls: a waiter keeps
// its ticket when some requests fail, and one whose process is dead delays the others for 3 s at most.
func newQueueStore(client redis.UniversalClient, ttl time.Duration, o Options, mode, space string, limit int) (*QueueStore, error) {
	s, err := New(client, ttl, o)
	if err != nil {
		return nil, err
	}
	process, all := rand.Text()[:16], newInbox(s, "").channel+":"
	i := newInbox(s, ":"+process)
	i.name = func(message string) string { owner, _, _ := strings.Cut(message, "/"); return owner }
	return &QueueStore{
		store: s, process: process, channel: all, inbox: i, mode: mode, space: space, limit: limit, ticketTTL: 12 * poll,
		scripts: original.scripts(),
	}, nil
}

// TryAcquire takes all keys or none. It returns locking.ErrBusy if another holder has one
// of them, or waits for one. Requests without an answer are retried as those of Store.
func (q *QueueStore) TryAcquire(ctx context.Context, keys ...string) (lease locking.Lease, err error) {
	defer describe(&err, "acquire", keys)
	r, err := q.request(ctx, keys)
	if err != nil {
		return lease, err
	}
	err = q.store.resolver.Acquire(ctx, func() (err error) {
		lease, err = r.take(ctx, 0)
		return err
	}, r.leave)
	return lease, err
}

// Acquire waits for all keys, in the queues of all of them at once. A waiter keeps its
// ticket as long as it sends a request from time to time. If it was silent for
// two to three seconds (a pause, no network), it goes to the end of the queue.
//
// A release hands the key over to the first waiter, with a message. Until of such a lease counts from before the
// last request of the waiter: as a rule it is a quarter of a second earlier at most, and never more than half of the trust.
//
// If ctx ends first, the error matches ctx.Err(), and locking.ErrBusy too if the request
// was in the queue.
func (q *QueueStore) Acquire(ctx context.Context, keys ...string) (lease locking.Lease, err error) {
	defer describe(&err, "acquire", keys)
	r, err := q.request(ctx, keys)
	if err != nil {
		return lease, err
	}
	woken := q.inbox.add(r.owner)
	defer q.inbox.remove(r.owner)
	for waits := false; ; {
		lease, err = r.takeOrWait(ctx)
		if errors.Is(err, locking.ErrBusy) {
			waits = true
			var message string
			if message, err = q.inbox.wait(ctx, woken); err == nil {
				if lease, handed := r.handed(message); handed {
					return lease, nil
				}
				continue
			}
		}
		if err != nil && waits {
			err = r.abandon(ctx, err)
		}
		return lease, err
	}
}

// request is one acquisition: what its requests to the server have in common, and what the last one brought.
type request struct {
	*QueueStore
	owner  string
	keys   []string
	sent   time.Time // before the last request
	ticket int64     // 0: it does not wait
}

func (q *QueueStore) request(ctx context.Context, keys []string) (*request, error) {
	keys, err := q.store.check(ctx, keys)
	handed := int64(0)
	if len(keys) == 1 {
		handed = q.store.ttl.Milliseconds()
	}
	owner := q.mode + ":" + strconv.FormatInt(handed, 10) + ":" + q.process + ":" + rand.Text()
	return &request{QueueStore: q, owner: owner, keys: keys}, err
}

// take sends a request. ticketTTL 0: the owner does not wait.
func (r *request) take(ctx context.Context, ticketTTL time.Duration) (locking.Lease, error) {
	r.sent = time.Now() // before the request: the TTL cannot start earlier
	grant, err := r.send(ctx, r.scripts.take, r.keys, r.owner, r.store.ttl.Milliseconds(), ticketTTL.Milliseconds())
	if err = r.store.waitsForSlot(err); err == nil && grant <= 0 {
		r.ticket, err = -grant, locking.ErrBusy
	}
	if err != nil {
		return locking.Lease{}, err
	}
	return r.lease(grant), nil
}

// lease is what the server granted after the last request was sent.
func (r *request) lease(grant int64) locking.Lease {
	l := locking.Lease{Keys: r.keys, Owner: r.owner + "/" + strconv.FormatInt(grant, 10), Until: r.sent.Add(r.store.trust)}
	if r.mode == exclusive {
		l.Fence = locking.Fence(grant)
	}
	return l
}

// handed returns the lease that a message hands over: OWNER/GRANT/TICKET (queue.lua). The server has set its TTL after
// the last answer, which contained the ticket. Counted from the arrival of the message, the lease could
// be over: the message may be late. One that is for an earlier ticket of this owner, which was forgotten, hands over
// nothing. If half of the trust is over, a request restarts the TTL.
func (r *request) handed(message string) (l locking.Lease, handed bool) {
	_, numbers, _ := strings.Cut(message, "/")
	grant, ticket, _ := strings.Cut(numbers, "/")
	number, err := strconv.ParseInt(grant, 10, 64)
	if err != nil || ticket != strconv.FormatInt(r.ticket, 10) {
		return l, false
	}
	l = r.lease(number)
	return l, time.Until(l.Until) > r.store.trust/2
}

// takeOrWait sends a request until the server has answered. The answer "busy" is kept from
// the Resolver, which would remove the ticket if an earlier request had no answer.
func (r *request) takeOrWait(ctx context.Context) (lease locking.Lease, err error) {
	var busy error
	err = r.store.resolver.Acquire(ctx, func() (err error) {
		if lease, err = r.take(ctx, r.ticketTTL); errors.Is(err, locking.ErrBusy) {
			busy, err = err, nil
		}
		return err
	}, r.leave)
	if err == nil {
		err = busy
	}
	return lease, err
}

// abandon removes the ticket of a waiter that stops waiting because of err.
func (r *request) abandon(ctx context.Context, err error) error {
	r.store.resolver.Abandon(r.leave)
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", locking.ErrBusy, err)
	}
	return err
}

// leave removes what requests may have left at the server: a ticket, or a grant.
func (r *request) leave(ctx context.Context) error {
	_, err := r.send(ctx, r.scripts.leave, r.keys, r.owner, 0)
	return err
}

// Renew restarts the TTL, on all keys or on none. It returns locking.ErrLost, finally, if
// the lease no longer holds one of them; it never takes a key again. After any other error
// l is as valid as before, until l.Until.
func (q *QueueStore) Renew(ctx context.Context, l locking.Lease) (_ locking.Lease, err error) {
	defer describe(&err, "renew", l.Keys)
	owner, grant := granted(l)
	if grant == 0 {
		return l, locking.ErrLost
	}
	sent := time.Now()
	held, err := q.send(ctx, q.scripts.keep, l.Keys, owner, grant, q.store.ttl.Milliseconds())
	switch {
	case err != nil:
		return l, err
	case held == 0:
		return l, locking.ErrLost
	}
	l.Until = sent.Add(q.store.trust)
	return l, nil
}

// Release frees the keys, and hands each over to its first waiter. It returns locking.ErrLost if
// the lease no longer held one of them; the others are freed all the same. After
// locking.ErrOutcomeUnknown the release is retried in the background.
func (q *QueueStore) Release(ctx context.Context, l locking.Lease) (err error) {
	defer describe(&err, "release", l.Keys)
	owner, grant := granted(l)
	if grant == 0 {
		return locking.ErrLost
	}
	script := q.scripts.leave
	if time.Now().Before(l.Until) { // close.lua does not compare the deadline
		script = q.scripts.release
	}
	held, err := q.send(ctx, script, l.Keys, owner, grant)
	return q.store.released(l, held, err, (&request{QueueStore: q, owner: owner, keys: l.Keys}).leave)
}

// granted returns the owner and the grant of a lease; 0: it is none of a QueueStore. The
// grant is in Lease.Owner, not only in Fence, which a shared lease does not have.
func granted(l locking.Lease) (owner string, grant int64) {
	owner, digits, _ := strings.Cut(l.Owner, "/")
	grant, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || len(l.Keys) == 0 {
		return "", 0
	}
	return owner, grant
}

// Shared reports whether a key has several holders at once: see locking.Nested.
func (q *QueueStore) Shared() bool { return q.mode == shared && q.limit > 1 }

// names returns the Redis names of keys, two for each:
//
//	PREFIX{TAG}SPACE:KEY
//	PREFIX{TAG}fence
func (q *QueueStore) names(keys []string) []string {
	names := make([]string, 0, 2*len(keys))
	for _, key := range keys {
		scope := q.store.scope(key)
		names = append(names, scope+q.space+":"+key, scope+"fence")
	}
	return names
}

// send runs a script on the queues of keys.
func (q *QueueStore) send(ctx context.Context, script *redis.Script, keys []string, owner string, args ...any) (int64, error) {
	return q.store.send(ctx, script, q.names(keys), append([]any{owner, len(keys), q.limit, q.channel}, args...)...)
}

// Close ends the subscription and the background work, and waits for them, at most as long
// as for one answer. It releases no locks.
func (q *QueueStore) Close() {
	q.inbox.close()
	q.store.Close()
}
