package redislock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
)

var _ locking.Store = (*Store)(nil)

// TTLMin is the shortest TTL of a Store. A TTL is a whole number of
// milliseconds, because that is what Redis counts in.
const TTLMin = 10 * time.Millisecond

// Options of a Store. The zero value is usable.
type Options struct {
	// Prefix begins every name in Redis; empty: "lock". Stores exclude each
	// other only if they have the same Prefix and HashTag.
	Prefix string
	// HashTag puts all keys of the Store into one slot of a Redis Cluster, and
	// so on one node. Needed there, and only there, for several keys in one
	// lease. Empty: the keys are spread.
	HashTag string
}

// Store keeps locks in Redis. It is safe for use by many goroutines. The client
// stays the caller's: Close does not close it.
type Store struct {
	client         redis.UniversalClient
	prefix, tag    string
	ttl            time.Duration
	trust          time.Duration // of the TTL, how much to believe in: the rest is for clocks that drift
	requestTimeout time.Duration // for one answer
	cluster        bool
	replays        bool // the client may send a request again by itself
	scripts        scripts
	silent         atomic.Bool // the last request had no answer
	resolver       *locking.Resolver
}

// New makes a Store whose leases last ttl. Settings of the client that would
// break a lock are refused where they can be seen; see Tune.
func New(client redis.UniversalClient, ttl time.Duration, o Options) (*Store, error) {
	if ttl < TTLMin || ttl%time.Millisecond != 0 {
		return nil, fmt.Errorf("redislock: TTL %v: must be whole milliseconds, at least %v: Redis cannot represent it, and it is not rounded", ttl, TTLMin)
	}
	if err := checkNaming(o); err != nil {
		return nil, err
	}
	if err := checkClient(client, ttl); err != nil {
		return nil, err
	}
	if o.Prefix == "" {
		o.Prefix = "lock"
	}
	_, cluster := client.(*redis.ClusterClient)
	_, single := client.(*redis.Client)
	return &Store{
		client: client, prefix: o.Prefix, tag: o.HashTag,
		ttl: ttl, trust: ttl - margin(ttl), requestTimeout: requestTimeout(ttl),
		cluster: cluster, replays: !single,
		scripts:  newScripts(),
		resolver: locking.NewResolver(ttl, requestTimeout(ttl)),
	}, nil
}

// margin is what Until leaves of a TTL: one part in a hundred for clocks that
// run at different rates, and 2 ms because Redis counts whole milliseconds.
func margin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// TryAcquire takes all keys or none. It returns locking.ErrBusy if another holder
// has one of them.
//
// An answer that does not come is asked for again, as the same owner, for at
// most half the TTL. If it never comes, or ctx ends first, the error is
// locking.ErrOutcomeUnknown, and what the request may have taken is given back
// in the background.
func (s *Store) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	if err := ctx.Err(); err != nil {
		return locking.Lease{}, fmt.Errorf("redislock: acquire %q: %w", keys, err)
	}
	keys, err := locking.SortedKeys(keys)
	if err != nil {
		return locking.Lease{}, err
	}
	if s.cluster && s.tag == "" && len(keys) > 1 {
		return locking.Lease{}, fmt.Errorf("acquire %q: %w", keys, ErrHashTag)
	}
	lease, err := s.acquire(ctx, keys)
	if err != nil {
		return locking.Lease{}, fmt.Errorf("redislock: acquire %q: %w", keys, err)
	}
	return lease, nil
}

// acquire asks as one owner until it is answered.
func (s *Store) acquire(ctx context.Context, keys []string) (lease locking.Lease, err error) {
	locks, names := s.names(keys)
	owner := rand.Text() // at least 128 random bits
	err = s.resolver.Acquire(ctx, func() error {
		sent := time.Now() // before the request: the TTL cannot start earlier
		fence, err := s.ask(ctx, s.scripts.acquire, names, owner, s.ttl.Milliseconds(), len(locks))
		if err == nil && fence <= 0 {
			err = locking.ErrBusy
		}
		lease = locking.Lease{Keys: keys, Owner: owner, Fence: locking.Fence(fence), Until: sent.Add(s.trust)}
		return err
	}, s.removal(locks, owner))
	if err != nil {
		return locking.Lease{}, err
	}
	return lease, nil
}

// noGrant is the value of no lock: whatever owner has is deleted.
const noGrant = ""

// removal deletes what owner may have taken.
func (s *Store) removal(locks []string, owner string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.ask(ctx, s.scripts.release, locks, noGrant, owner)
		return err
	}
}

// Renew sets the TTL anew, on all keys or on none. It returns locking.ErrLost,
// finally, if one of them is not under this lease any more; it never takes a
// key again. After any other error l is as good as before, until l.Until.
func (s *Store) Renew(ctx context.Context, l locking.Lease) (locking.Lease, error) {
	locks, _ := s.names(l.Keys)
	sent := time.Now()
	held, err := s.ask(ctx, s.scripts.renew, locks, value(l), s.ttl.Milliseconds())
	if err == nil && (held == 0 || len(locks) == 0) {
		err = locking.ErrLost
	}
	if err != nil {
		return l, fmt.Errorf("redislock: renew %q: %w", l.Keys, err)
	}
	l.Until = sent.Add(s.trust)
	return l, nil
}

// Release gives the keys back. It returns locking.ErrLost if one of them was
// not under this lease any more; the others are given back all the same. After
// locking.ErrOutcomeUnknown it goes on trying in the background.
func (s *Store) Release(ctx context.Context, l locking.Lease) error {
	locks, _ := s.names(l.Keys)
	held, err := s.ask(ctx, s.scripts.release, locks, value(l), l.Owner)
	if errors.Is(err, locking.ErrOutcomeUnknown) {
		s.resolver.Abandon(s.removal(locks, l.Owner))
	}
	if err == nil && (held < int64(len(locks)) || len(locks) == 0) {
		err = locking.ErrLost
	}
	if err != nil {
		return fmt.Errorf("redislock: release %q: %w", l.Keys, err)
	}
	return nil
}

// Close ends the background work and waits for it, at most as long as for one
// answer. Locks stay as they are.
func (s *Store) Close() { s.resolver.Close() }

// value is what acquire.lua wrote for this grant.
func value(l locking.Lease) string {
	return strconv.FormatInt(int64(l.Fence), 10) + ":" + l.Owner
}

// ErrHashTag tells that several keys were asked for in one lease on Redis
// Cluster, by a Store without Options.HashTag. A script runs on one node, and
// keys live on one node for certain only if they have one hash tag.
var ErrHashTag = errors.New("redislock: on Redis Cluster several keys in one lease must share a hash tag: set Options.HashTag (the server calls it CROSSSLOT)")

// buckets is how many fence counters there are for a prefix. It is part of the
// names, so that two versions of a program with different numbers would not
// exclude each other: never change it.
//
// One counter for all keys would put every lock of a Cluster into one slot; one
// counter for each key would never be deleted and pile up. 1024 spread the keys
// over the nodes and cost at most a hundred kilobytes.
const buckets = 1024

// names gives the Redis names of keys: the locks, then their fence counters
// (each once), as acquire.lua takes them.
//
//	PREFIX{TAG}lock:KEY
//	PREFIX{TAG}fence
//
// Neither prefix nor tag has a brace, so the first pair of braces is ours:
// names of different keys differ whatever bytes the keys hold, and Redis
// Cluster places them by TAG alone. The key comes last and is left as it is:
// Redis names are any bytes.
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

// scope is the part of a name that decides its slot: prefix and tag.
func (s *Store) scope(key string) string {
	tag := s.tag
	if tag == "" {
		tag = strconv.Itoa(int(crc32.ChecksumIEEE([]byte(key)) % buckets))
	}
	return s.prefix + "{" + tag + "}"
}

// checkNaming refuses what would let two names run into each other.
func checkNaming(o Options) error {
	for option, value := range map[string]string{"Prefix": o.Prefix, "HashTag": o.HashTag} {
		if strings.ContainsAny(value, "{}") {
			return fmt.Errorf("redislock: Options.%s %q has a brace: braces mark the hash tag", option, value)
		}
	}
	return nil
}
