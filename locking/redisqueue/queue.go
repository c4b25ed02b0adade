// SPDX-License-Identifier: MIT

package redisqueue

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/redislock"
)

//go:embed queue.lua
var queueLua string

//go:embed take.lua
var takeLua string

//go:embed keep.lua
var keepLua string

//go:embed leave.lua
var leaveLua string

// NewFair makes a fair lock: first come, first served, among all processes. For client, ttl and o see redislock.New.
//
// A fair lock and a Store of redislock do not exclude each other, whatever their Options. The writers of
// an RW and a fair lock with the same Options do.
func NewFair(client redis.UniversalClient, ttl time.Duration, o redislock.Options) (*driver.Store, error) {
	return open(client, ttl, o, exclusive, "queue", holdersMax)
}

// NewSemaphore makes a semaphore: each key has a number of permits, which are granted in
// order of arrival. A lease is one permit. It expires by itself, by the server's clock: a
// dead holder takes no other permit with it, and no client's clock matters.
//
// All processes must name the same number of permits. A lease has no Fence: several are
// valid at once.
func NewSemaphore(client redis.UniversalClient, ttl time.Duration, permits int, o redislock.Options) (*driver.Store, error) {
	if permits < 1 || permits > holdersMax {
		return nil, fmt.Errorf("redisqueue: a semaphore of %d permits: want 1 or more", permits)
	}
	return open(client, ttl, o, shared, "permits", permits)
}

// RW is a read-write lock: a key has one writer, or any number of readers. Both wait in one
// queue in order of arrival, so neither starves: a reader that comes after a waiting writer
// waits behind it, and readers next to each other in the queue hold the key together.
//
// A lease of a reader has no Fence: a guard refuses a write under it. A holder must not
// request its own keys again: a reader behind a writer that waits for that same reader
// waits until one of the two gives up.
type RW struct {
	Read, Write *driver.Store
}

// NewRW makes a read-write lock whose leases last ttl; see NewFair.
func NewRW(client redis.UniversalClient, ttl time.Duration, o redislock.Options) (*RW, error) {
	write, err := open(client, ttl, o, exclusive, "queue", holdersMax)
	if err != nil {
		return nil, err
	}
	read, err := open(client, ttl, o, shared, "queue", holdersMax)
	return &RW{Read: read, Write: write}, err
}

// Close closes both sides.
func (rw *RW) Close() {
	rw.Read.Close()
	rw.Write.Close()
}

// The modes: an exclusive lease, and one beside others, of which a key may have holdersMax.
const (
	exclusive  = "x"
	shared     = "s"
	holdersMax = math.MaxInt32
)

// poll is how long a waiter waits for a message before it sends its next request. Its ticket outlives some that have no answer.
const (
	poll      = 250 * time.Millisecond
	ticketTTL = 12 * poll
)

// queue is a driver.Driver and a driver.Listener. Its waiters wait at the server, each with a ticket.
type queue struct {
	redislock.Options
	client    redis.UniversalClient
	ttl       time.Duration
	process   string // random: each Store is a process of its own
	mode      string // begins the owners
	space     string // begins the names of the keys
	limit     int    // of shared leases of a key at once
	ticketTTL time.Duration
	silence   time.Duration
	scripts   scripts
}

type scripts struct{ take, keep, leave *redis.Script }

// source is the Lua code of the scripts.
type source struct{ queue, take, keep, leave string }

var original = source{queueLua, takeLua, keepLua, leaveLua}

func (s source) scripts() scripts {
	return scripts{redis.NewScript(s.queue + s.take), redis.NewScript(s.queue + s.keep), redis.NewScript(s.queue + s.leave)}
}

func open(client redis.UniversalClient, ttl time.Duration, o redislock.Options, mode, space string, limit int) (*driver.Store, error) {
	q, err := newQueue(client, ttl, o, mode, space, limit)
	if err != nil {
		return nil, err
	}
	return driver.New(q, settings(q))
}

// settings are those of a Store.
func settings(q *queue) driver.Options {
	o := redislock.Settings(q.ttl)
	o.Name, o.Tickets, o.Shared = "redisqueue", true, q.mode == shared && q.limit > 1
	return o
}

func newQueue(client redis.UniversalClient, ttl time.Duration, o redislock.Options, mode, space string, limit int) (*queue, error) {
	if err := errors.Join(settings(&queue{ttl: ttl}).Check(), o.Check(), redislock.Check(client, ttl)); err != nil {
		return nil, err
	}
	o.Prefix = cmp.Or(o.Prefix, "lock")
	return &queue{
		Options: o, client: client, ttl: ttl, process: rand.Text(), mode: mode, space: space, limit: limit,
		ticketTTL: ticketTTL, silence: redislock.Silence, scripts: original.scripts(),
	}, nil
}

// Take takes all keys for owner, or none. With wait the owner gets a ticket in the queues of all of them, or keeps the one that
// it has.
func (q *queue) Take(ctx context.Context, keys []string, owner string, wait bool) (driver.Grant, error) {
	_, cluster := q.client.(*redis.ClusterClient)
	if cluster && q.HashTag == "" && len(keys) > 1 {
		return driver.Grant{}, driver.Refused(redislock.ErrHashTag)
	}
	last := time.Duration(0)
	if wait {
		last = q.ticketTTL
	}
	grant, err := q.send(ctx, q.scripts.take, keys, owner, q.ttl.Milliseconds(), last.Milliseconds())
	if cluster { // another client will not find the node
		err = redislock.WaitsForSlot(err)
	}
	if err == nil && grant <= 0 {
		err = locking.ErrBusy
	}
	g := driver.Grant{Mark: strconv.FormatInt(grant, 10)} // in the owner, since a shared lease has no fence
	if q.mode == exclusive {
		g.Fence = locking.Fence(grant)
	}
	return g, err
}

// Keep begins the TTL again.
func (q *queue) Keep(ctx context.Context, l locking.Lease) error {
	owner, grant := granted(l)
	held, err := q.send(ctx, q.scripts.keep, l.Keys, owner, grant, q.ttl.Milliseconds())
	if err == nil && held == 0 {
		err = locking.ErrLost
	}
	return err
}

// Free frees the keys, or removes the tickets of a waiter, and tells the next waiter of each.
func (q *queue) Free(ctx context.Context, l locking.Lease) error {
	owner, grant := granted(l)
	held, err := q.send(ctx, q.scripts.leave, l.Keys, owner, grant)
	if err == nil && held < int64(len(l.Keys)) {
		err = locking.ErrLost
	}
	return err
}

// granted returns the owner and the grant of a lease; 0: any.
func granted(l locking.Lease) (owner, grant string) {
	owner, grant, _ = strings.Cut(l.Owner, "/")
	return owner, cmp.Or(grant, "0")
}

// names returns the Redis names of keys, two for each:
//
//	PREFIX{TAG}SPACE:KEY
//	PREFIX{TAG}fence
func (q *queue) names(keys []string) []string {
	names := make([]string, 0, 2*len(keys))
	for _, key := range keys {
		scope := q.Scope(key)
		names = append(names, scope+q.space+":"+key, scope+"fence")
	}
	return names
}

// send runs a script on the queues of keys.
func (q *queue) send(ctx context.Context, script *redis.Script, keys []string, owner string, args ...any) (int64, error) {
	full := q.mode + ":" + q.process + ":" + owner
	return redislock.Run(ctx, q.client, script, q.names(keys), append([]any{full, len(keys), q.limit, q.channel("")}, args...)...)
}

// channel is that of the messages to a process.
func (q *queue) channel(process string) string {
	return q.Prefix + "{" + q.HashTag + "}wake:" + process
}

// Listen receives the messages to this process, which are owners.
func (q *queue) Listen(ctx context.Context, wake func(owner string)) error {
	return redislock.Subscribe(ctx, q.client, q.channel(q.process), q.silence, func(message string) {
		wake(message[strings.LastIndex(message, ":")+1:])
	})
}
