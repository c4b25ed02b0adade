// SPDX-License-Identifier: MIT

package redislock

import (
	"context"
	_ "embed"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/driver"
)

//go:embed acquire.lua
var acquireLua string

//go:embed renew.lua
var renewLua string

//go:embed release.lua
var releaseLua string

// scripts are sent by their hash, and in full if the server does not have them
// (after a restart or a SCRIPT FLUSH).
type scripts struct{ acquire, renew, release *redis.Script }

func newScripts() scripts {
	return scripts{redis.NewScript(acquireLua), redis.NewScript(renewLua), redis.NewScript(releaseLua)}
}

// poll is how long a waiter waits for a message before it sends its next request. Redis does not repeat a message, and sends
// none when a lease expires.
const poll = 250 * time.Millisecond

// locks is a driver.Driver and a driver.Listener: each of its requests is one script.
type locks struct {
	Options
	client  redis.UniversalClient
	ttl     time.Duration
	cluster bool
	markTTL time.Duration // how long a waiter's request asks for a message
	silence time.Duration // see Subscribe
	scripts scripts
}

// Take takes all keys for owner, or none.
func (d *locks) Take(ctx context.Context, keys []string, owner string, wait bool) (driver.Grant, error) {
	if d.cluster && d.HashTag == "" && len(keys) > 1 {
		return driver.Grant{}, driver.Refused(ErrHashTag)
	}
	locks, names := d.names(keys)
	marks := 0
	if wait {
		names, marks = append(names, d.marks(keys)...), len(keys)
	}
	fence, err := Run(ctx, d.client, d.scripts.acquire, names, owner, d.ttl.Milliseconds(), len(locks), marks, d.markTTL.Milliseconds())
	if err = d.waitsForSlot(err); err == nil && fence == 0 {
		err = locking.ErrBusy
	}
	return driver.Grant{Fence: locking.Fence(fence)}, err
}

// Keep begins the TTL again.
func (d *locks) Keep(ctx context.Context, l locking.Lease) error {
	locks, _ := d.names(l.Keys)
	held, err := Run(ctx, d.client, d.scripts.renew, locks, value(l), d.ttl.Milliseconds())
	if err == nil && held == 0 {
		err = locking.ErrLost
	}
	return err
}

// Free frees the keys, and tells the waiters.
func (d *locks) Free(ctx context.Context, l locking.Lease) error {
	locks, _ := d.names(l.Keys)
	release := func(names []string) (int64, error) {
		return Run(ctx, d.client, d.scripts.release, names, value(l), l.Owner, d.channel(), len(locks))
	}
	held, err := release(append(locks[:len(locks):len(locks)], d.marks(l.Keys)...))
	if d.cluster && redis.HasErrorPrefix(err, "TRYAGAIN ") { // while the slot moves, a mark that does not exist is refused
		held, err = release(locks)
	}
	if err == nil && held < int64(len(l.Keys)) {
		err = locking.ErrLost
	}
	return err
}

// value is what acquire.lua wrote for this grant.
func value(l locking.Lease) string {
	return strconv.FormatInt(int64(l.Fence), 10) + ":" + l.Owner
}

// ErrHashTag reports a request for several keys of different slots. A script runs on one node, and keys are certain to be
// on one node only if they share a hash tag.
var ErrHashTag = fmt.Errorf("%w: on Redis Cluster they must share a hash tag: set Options.HashTag (the server calls it CROSSSLOT)", locking.ErrSeveralKeys)

// waitsForSlot makes a refusal of a Cluster whose slot is moving match locking.ErrBusy: nothing was done, and the same request
// is granted when the slot has its node. The client follows MOVED and ASK, but not for ever: while a slot changes hands, each
// of two nodes may name the other. And no node that is asked has both a lock that is free, since that has no key, and the
// fence counter that has one: then the answer is TRYAGAIN until the slot has moved, for minutes if it is large.
func (d *locks) waitsForSlot(err error) error {
	if !d.cluster {
		return err // another client will not find the node
	}
	return WaitsForSlot(err)
}

// WaitsForSlot makes an error of a Cluster that means "later" match locking.ErrBusy, with a text that does not name another holder.
func WaitsForSlot(err error) error {
	for _, word := range []string{"TRYAGAIN", "CLUSTERDOWN", "MOVED", "ASK"} {
		if redis.HasErrorPrefix(err, word+" ") {
			return locking.Like(locking.ErrBusy, fmt.Errorf("the slot of the keys has no node at the moment: %w", err))
		}
	}
	return err
}

// buckets is the number of fence counters for a prefix. Never change it: the names
// depend on it, so two versions of a program with different numbers would not
// exclude each other.
//
// One counter for all keys would put every lock of a Cluster into one slot. One
// counter for each key could never be deleted, and the counters would accumulate. 1024
// spread the keys over the nodes and cost at most a hundred kilobytes.
const buckets = 1024

// names returns the Redis names of keys: the locks, and for acquire.lua the locks
// followed by their fence counters (each once).
//
//	PREFIX{TAG}lock:KEY
//	PREFIX{TAG}fence
//
// Neither prefix nor tag has a brace, so the first pair of braces encloses TAG: names
// of different keys differ whatever bytes the keys hold, and Redis Cluster places
// them by TAG alone. The key comes last and unchanged: a Redis name may hold any bytes.
func (o Options) names(keys []string) (locks, all []string) {
	locks = make([]string, len(keys), 2*len(keys))
	var counters []string
	for i, key := range keys {
		scope := o.Scope(key)
		locks[i] = scope + "lock:" + key
		if counter := scope + "fence"; !slices.Contains(counters, counter) {
			counters = append(counters, counter)
		}
	}
	return locks, slices.Concat(locks, counters)
}

// marks returns the names that exist while a process waits for a message of the release of a key: PREFIX{TAG}wait:KEY.
func (o Options) marks(keys []string) []string {
	marks := make([]string, len(keys))
	for i, key := range keys {
		marks[i] = o.Scope(key) + "wait:" + key
	}
	return marks
}

// Scope returns the beginning of key's names: the prefix, and the tag that decides the slot.
func (o Options) Scope(key string) string {
	tag := o.HashTag
	if tag == "" {
		tag = strconv.Itoa(int(crc32.ChecksumIEEE([]byte(key)) % buckets))
	}
	return o.Prefix + "{" + tag + "}"
}

// channel is that of the messages of releases, which are names of locks.
func (o Options) channel() string { return o.Prefix + "{" + o.HashTag + "}wake" }

// Listen receives the messages of releases.
func (d *locks) Listen(ctx context.Context, wake func(key string)) error {
	return Subscribe(ctx, d.client, d.channel(), d.silence, func(name string) {
		_, key, _ := strings.Cut(name, "}lock:")
		wake(key)
	})
}
