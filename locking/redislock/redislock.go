package redislock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
)

var _ locking.Store = (*Store)(nil)

// Store keeps locks in Redis. It is safe for concurrent use. The caller owns the
// client: Close does not close it.
type Store struct {
	client         redis.UniversalClient
	prefix, tag    string
	ttl            time.Duration
	trust          time.Duration // the TTL less a margin for clocks that drift
	requestTimeout time.Duration // for one answer
	cluster        bool
	scripts        scripts
	silent         atomic.Bool // the last request had no answer
	resolver       *locking.Resolver
}

// ErrHashTag reports a request for several keys in one lease on Redis Cluster, by a
// Store without Options.HashTag. A script runs on one node, and keys are certain to be
// on one node only if they share a hash tag.
var ErrHashTag = errors.New("redislock: on Redis Cluster several keys in one lease must share a hash tag: set Options.HashTag (the server calls it CROSSSLOT)")

// TryAcquire takes all keys or none. It returns locking.ErrBusy if another holder
// has one of them.
//
// A request without an answer is retried, as the same owner, for at most half the
// TTL. If no answer comes, or ctx ends first, the error is
// locking.ErrOutcomeUnknown, and what the request may have taken is released in
// the background.
func (s *Store) TryAcquire(ctx context.Context, keys ...string) (lease locking.Lease, err error) {
	defer describe(&err, "acquire", keys)
	if keys, err = s.check(ctx, keys); err != nil {
		return lease, err
	}
	return s.tryAcquire(ctx, keys)
}

func (s *Store) tryAcquire(ctx context.Context, keys []string) (lease locking.Lease, err error) {
	locks, names := s.names(keys)
	owner := newOwner()
	err = s.resolver.Acquire(ctx, func() (err error) {
		lease, _, err = s.take(ctx, s.scripts.acquire, owner, keys, len(locks), names)
		return err
	}, s.removal(locks, owner))
	if err != nil {
		return locking.Lease{}, err
	}
	return lease, nil
}

func newOwner() string { return rand.Text() } // at least 128 random bits

// take sends a script that takes locks for owner: acquire.lua, or await.lua with more names and args. reply is its
// number: the fence, or at most 0 if another owner has one of the locks.
func (s *Store) take(ctx context.Context, script *redis.Script, owner string, keys []string, locks int, names []string, args ...any) (lease locking.Lease, reply int64, err error) {
	sent := time.Now() // before the request: the TTL cannot start earlier
	reply, err = s.send(ctx, script, names, append([]any{owner, s.ttl.Milliseconds(), locks}, args...)...)
	if err = s.waitsForSlot(err); err == nil && reply <= 0 {
		err = locking.ErrBusy
	}
	return locking.Lease{Keys: keys, Owner: owner, Fence: locking.Fence(reply), Until: sent.Add(s.trust)}, reply, err
}

// check returns the keys in order, unless ctx has ended or they cannot be in one lease.
func (s *Store) check(ctx context.Context, keys []string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	keys, err := locking.SortedKeys(keys)
	if err == nil && s.cluster && s.tag == "" && len(keys) > 1 {
		err = ErrHashTag
	}
	return keys, err
}

// describe adds to an error what failed.
func describe(err *error, operation string, keys []string) {
	if *err != nil {
		*err = fmt.Errorf("redislock: %s %q: %w", operation, keys, *err)
	}
}

// removal returns a function that deletes what owner may have taken, under any fence.
func (s *Store) removal(locks []string, owner string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.send(ctx, s.scripts.release, locks, "", owner)
		return err
	}
}

// Renew restarts the TTL, on all keys or on none. It returns locking.ErrLost,
// finally, if the lease no longer holds one of them; it never takes a key
// again. After any other error l is as valid as before, until l.Until.
func (s *Store) Renew(ctx context.Context, l locking.Lease) (_ locking.Lease, err error) {
	defer describe(&err, "renew", l.Keys)
	locks, _ := s.names(l.Keys)
	sent := time.Now()
	held, err := s.send(ctx, s.scripts.renew, locks, value(l), s.ttl.Milliseconds())
	switch {
	case err != nil:
		return l, err
	case held == 0 || len(locks) == 0:
		return l, locking.ErrLost
	}
	l.Until = sent.Add(s.trust)
	return l, nil
}

// Release frees the keys. It returns locking.ErrLost if the lease no longer held
// one of them; the others are freed all the same. After any other error the release
// is retried in the background.
func (s *Store) Release(ctx context.Context, l locking.Lease) (err error) {
	defer describe(&err, "release", l.Keys)
	locks, _ := s.names(l.Keys)
	held, err := s.send(ctx, s.scripts.release, locks, value(l), l.Owner)
	return s.released(l, held, err, s.removal(locks, l.Owner))
}

// released returns the result of a release. held is how many keys of l were still held.
func (s *Store) released(l locking.Lease, held int64, err error, remove func(context.Context) error) error {
	switch {
	case err != nil:
		s.resolver.Abandon(remove)
	case held < int64(len(l.Keys)) || len(l.Keys) == 0:
		return locking.ErrLost
	}
	return err
}

// Close ends the background work and waits for it, at most as long as for one
// answer. It releases no locks.
func (s *Store) Close() { s.resolver.Close() }

// value is what acquire.lua wrote for this grant.
func value(l locking.Lease) string {
	return strconv.FormatInt(int64(l.Fence), 10) + ":" + l.Owner
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
func (s *Store) names(keys []string) (locks, all []string) {
	locks = make([]string, len(keys), len(keys)+1)
	var counters []string
	for i, key := range keys {
		scope := s.scope(key)
		locks[i] = scope + "lock:" + key
		if counter := scope + "fence"; !slices.Contains(counters, counter) {
			counters = append(counters, counter)
		}
	}
	return locks, append(locks, counters...)
}

// scope returns the beginning of key's names: the prefix, and the tag that decides the slot.
func (s *Store) scope(key string) string {
	tag := s.tag
	if tag == "" {
		tag = strconv.Itoa(int(crc32.ChecksumIEEE([]byte(key)) % buckets))
	}
	return s.prefix + "{" + tag + "}"
}
