package redislock

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"shop/locking"
)

// TTLMin is the shortest TTL of a Store. A TTL is a whole number of
// milliseconds, because that is what Redis counts in.
const TTLMin = 10 * time.Millisecond

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
	_, cluster := client.(*redis.ClusterClient)
	_, single := client.(*redis.Client)
	return &Store{
		client: client, prefix: cmp.Or(o.Prefix, "lock"), tag: o.HashTag,
		ttl: ttl, trust: ttl - margin(ttl), requestTimeout: requestTimeout(ttl),
		cluster: cluster, replays: !single,
		scripts:  newScripts(),
		resolver: locking.NewResolver(ttl, requestTimeout(ttl)),
	}, nil
}

// margin is what Until leaves of a TTL: one part in a hundred for clocks that
// run at different rates, and 2 ms because Redis counts whole milliseconds.
func margin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// requestTimeout is how long one answer is waited for: several must fit into the half
// TTL in which TryAcquire asks again, and Do renews every third of a TTL. It
// need not be long, since to ask again does no harm, and it is the longest time
// for which the cancellation of a ctx may go unheard.
func requestTimeout(ttl time.Duration) time.Duration { return min(ttl/6, 250*time.Millisecond) }

// Tune sets what a client needs to carry locks with this TTL, and leaves the
// rest of o alone. It serves all kinds of server:
//
//	redis.NewUniversalClient(redislock.Tune(&redis.UniversalOptions{
//		MasterName: "mymaster", Addrs: sentinels, // Sentinel; or IsClusterMode: true
//	}, ttl))
//
// go-redis as it comes does not suit: it waits 5 s for an answer whatever the
// deadline of ctx says, and sends a request again by itself up to three times,
// all of which may outlast the lock that the request was about.
func Tune[O redis.Options | redis.UniversalOptions](o *O, ttl time.Duration) *O {
	wait := requestTimeout(ttl)
	fields := reflect.ValueOf(o).Elem() // the two types share these fields, and a type parameter cannot name them
	for name, value := range map[string]any{
		"ContextTimeoutEnabled":    true,
		"MaxRetries":               -1, // 0 would mean 3
		"DialTimeout":              wait,
		"ReadTimeout":              wait,
		"WriteTimeout":             wait,
		"PoolTimeout":              wait / 2, // less than wait, so that "never sent" differs from "no answer"
		"DialerRetries":            1,        // 0 would mean 5, 100 ms apart
		"PipelinePoolSize":         -1,       // no pipelines here, no second pool
		"MaintNotificationsConfig": &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	} {
		fields.FieldByName(name).Set(reflect.ValueOf(value))
	}
	return o
}

// errURL repeats neither the URL nor what its parser says of it: any part of a
// malformed URL may be the password.
var errURL = errors.New("redislock: not a URL of Redis (not shown, since it may hold a password): want redis://user:password@host:6379/0, rediss:// or unix://")

// Connect makes a client for one server from a URL (redis://, rediss://,
// unix://), tuned for locks with this TTL. It does not talk to the server yet.
// Use it for locks alone: elsewhere its short time-outs would hurt.
func Connect(url string, ttl time.Duration) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, errURL
	}
	return redis.NewClient(Tune(o, ttl)), nil
}

// checkClient refuses a client that cannot carry locks. What it cannot look
// into, as a wrapper around a client, it believes.
func checkClient(client redis.UniversalClient, ttl time.Duration) error {
	var errs []error
	switch c := client.(type) {
	case nil:
		return errors.New("redislock: no client")
	case *redis.Ring:
		return errors.New("redislock: a Ring moves keys to another server when theirs does not answer: two holders at once")
	case *redis.Client:
		o := c.Options()
		if o.MaxRetries > 0 {
			errs = append(errs, fmt.Errorf("MaxRetries is %d (0 means 3): set -1, it would send acquire again unseen", o.MaxRetries))
		}
		errs = append(errs, checkTimeouts(ttl, o.ContextTimeoutEnabled, o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout))
	case *redis.ClusterClient:
		// It replays by itself up to MaxRedirects times, needed to find the node;
		// the Store takes that into account.
		o := c.Options()
		errs = append(errs, checkTimeouts(ttl, o.ContextTimeoutEnabled, o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("redislock: this client is not made for a lock with TTL %v (see Tune):\n%w", ttl, err)
	}
	return nil
}

// checkTimeouts wants each time-out set, and at most half the TTL.
func checkTimeouts(ttl time.Duration, ctxEnabled bool, dial, read, write, pool time.Duration) error {
	var errs []error
	if !ctxEnabled {
		errs = append(errs, errors.New("ContextTimeoutEnabled is false: a deadline of ctx would not be heard"))
	}
	for _, t := range []struct {
		name string
		wait time.Duration
	}{{"DialTimeout", dial}, {"ReadTimeout", read}, {"WriteTimeout", write}, {"PoolTimeout", pool}} {
		if t.wait <= 0 || t.wait > ttl/2 {
			errs = append(errs, fmt.Errorf("%s is %v: set it above 0 and to at most half the TTL", t.name, t.wait))
		}
	}
	return errors.Join(errs...)
}
