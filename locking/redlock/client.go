package redlock

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"shop/locking"
)

// TTLMin is the shortest TTL of a Store. A TTL is a whole number of milliseconds, the unit
// in which Redis counts.
const TTLMin = 10 * time.Millisecond

// Options of a Store. The zero value is usable.
type Options struct {
	// Prefix begins every name in Redis; empty: "redlock". Stores exclude each other only
	// if they have the same Prefix and the same servers.
	Prefix string
}

// New makes a Store on the servers with these URLs (redis://, rediss://, unix://), whose
// leases last ttl. It needs at least three servers, independent of each other: no
// replication, no Cluster, other machines. It does not contact them.
func New(urls []string, ttl time.Duration, o Options) (_ *Store, err error) {
	if ttl < TTLMin || ttl%time.Millisecond != 0 {
		return nil, fmt.Errorf("redlock: TTL %v: must be whole milliseconds, at least %v: Redis cannot represent it, and it is not rounded", ttl, TTLMin)
	}
	if strings.Contains(o.Prefix, ":") { // names of different keys would collide
		return nil, fmt.Errorf("redlock: Options.Prefix %q has a colon, which marks the beginning of the key", o.Prefix)
	}
	if len(urls) < 3 {
		return nil, fmt.Errorf("redlock: %d servers: a majority that survives the loss of one server needs three", len(urls))
	}
	settings, addrs := make([]*redis.Options, len(urls)), map[string]bool{}
	for i, url := range urls {
		if settings[i], err = redis.ParseURL(url); err != nil {
			// Neither the URL nor the parser's error is shown: any part of a malformed URL may be the password.
			return nil, fmt.Errorf("redlock: server %d: not a URL of Redis (not shown, since it may hold a password): want redis://user:password@host:6379/0, rediss:// or unix://", i+1)
		}
		if addrs[settings[i].Addr] {
			return nil, fmt.Errorf("redlock: server %d: %s is listed twice: it would have two votes", i+1, settings[i].Addr)
		}
		addrs[settings[i].Addr] = true
	}
	s := &Store{
		quorum: len(urls)/2 + 1, prefix: cmp.Or(o.Prefix, "redlock"),
		ttl: ttl, trust: ttl - drift(ttl), requestTimeout: requestTimeout(ttl),
		do: newCommands(ttl), resolver: locking.NewResolver(ttl, requestTimeout(ttl)),
	}
	for _, o := range settings {
		s.servers = append(s.servers, redis.NewClient(tune(o, s.requestTimeout)))
	}
	return s, nil
}

// drift is CLOCK_DRIFT of the manual, as in its reference implementation: a hundredth of
// the TTL for clocks that run at different rates, and 2 ms because Redis counts whole
// milliseconds.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// requestTimeout bounds the wait for one answer. It is small compared to the TTL, because
// a request takes as long as the slowest server, and that is lost from the validity.
func requestTimeout(ttl time.Duration) time.Duration { return min(ttl/10, 250*time.Millisecond) }

// tune sets the options that a client needs for locks. The defaults of go-redis retry a
// request, and a SET NX that is repeated finds its own lock and takes it for another's;
// and they wait for seconds.
func tune(o *redis.Options, wait time.Duration) *redis.Options {
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1 // 0 would mean 3
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = wait, wait, wait
	o.PoolTimeout = wait / 2 // less than wait: a request that was never sent must not look like one without an answer
	o.DialerRetries = 1      // 0 would mean 5, 100 ms apart
	o.PipelinePoolSize = -1  // no pipelines here, no second pool
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o
}
