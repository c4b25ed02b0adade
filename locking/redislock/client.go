// SPDX-License-Identifier: MIT

package redislock

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"shop/locking"
	"shop/locking/driver"
)

// TTLMin is the shortest TTL of a Store. A TTL is a whole number of milliseconds,
// the unit in which Redis counts.
const TTLMin = 10 * time.Millisecond

// Options of a Store. The zero value is usable.
type Options struct {
	// Prefix begins every name in Redis; empty: "lock". Stores exclude each
	// other only if they have the same Prefix and HashTag.
	Prefix string
	// HashTag puts all keys of the Store into one slot of a Redis Cluster, and so
	// on one node. Several keys in one lease need it in a Cluster, and only there.
	// Empty: the keys are spread over the slots.
	HashTag string
}

// New makes a Store whose leases last ttl. It refuses a client whose settings would
// break a lock, if it can read them; see Tune. It sends scripts by the client's Process,
// not by Eval and EvalSha. A wrapper or a hook must not send one of them twice. The caller owns the client, and closes it after
// the Store.
func New(client redis.UniversalClient, ttl time.Duration, o Options) (*driver.Store, error) {
	d, err := newLocks(client, ttl, o)
	if err != nil {
		return nil, err
	}
	return driver.New(d, Settings(ttl))
}

// Settings are the driver.Options of a Store: for others whose server is Redis.
func Settings(ttl time.Duration) driver.Options {
	return driver.Options{
		Name: "redislock", TTL: ttl, TTLMin: TTLMin, TTLUnit: time.Millisecond, Limit: requestTimeout(ttl),
		Pause: locking.Backoff{Base: poll, Max: poll}, Turn: 5 * time.Millisecond, Gap: 2 * time.Millisecond,
	}
}

func newLocks(client redis.UniversalClient, ttl time.Duration, o Options) (*locks, error) {
	if err := errors.Join(Settings(ttl).Check(), o.Check(), Check(client, ttl)); err != nil {
		return nil, err
	}
	o.Prefix = cmp.Or(o.Prefix, "lock")
	_, cluster := client.(*redis.ClusterClient)
	return &locks{Options: o, client: client, ttl: ttl, cluster: cluster, markTTL: 4 * poll, silence: Silence, scripts: newScripts()}, nil
}

// Check refuses braces, which would let names of different keys collide.
func (o Options) Check() error {
	for option, value := range map[string]string{"Prefix": o.Prefix, "HashTag": o.HashTag} {
		if strings.ContainsAny(value, "{}") {
			return fmt.Errorf("redislock: Options.%s %q has a brace: braces mark the hash tag", option, value)
		}
	}
	return nil
}

// requestTimeout bounds the wait for one answer. Several requests must fit into the half
// TTL in which TryAcquire retries, and Do renews every third of a TTL. It may be short,
// since a retry does no harm, and should be, since the cancellation of a ctx may go
// unnoticed for that long.
func requestTimeout(ttl time.Duration) time.Duration { return min(ttl/6, 250*time.Millisecond) }

// Tune sets the options that a client needs for locks with this TTL, and no others.
// It serves all kinds of server:
//
//	redis.NewUniversalClient(redislock.Tune(&redis.UniversalOptions{
//		MasterName: "mymaster", Addrs: sentinels, // Sentinel; or IsClusterMode: true
//	}, ttl))
//
// The defaults of go-redis do not suit: the client waits 5 s for an answer whatever the
// deadline of ctx, and retries a request up to three times. Together these may take
// longer than the lock lasts.
func Tune[O redis.Options | redis.UniversalOptions | redis.FailoverOptions](o *O, ttl time.Duration) *O {
	wait := requestTimeout(ttl)
	fields := reflect.ValueOf(o).Elem() // all types have these fields, but generic code cannot name them
	for name, value := range map[string]any{
		"ContextTimeoutEnabled":    true,
		"MaxRetries":               -1, // 0 would mean 3
		"DialTimeout":              wait,
		"ReadTimeout":              wait,
		"WriteTimeout":             wait,
		"PoolTimeout":              wait / 2, // less than wait: a request that was never sent must not look like one without an answer
		"DialerRetries":            1,        // 0 would mean 5, 100 ms apart
		"PipelinePoolSize":         -1,       // no pipelines here, no second pool
		"MaintNotificationsConfig": &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	} {
		if f := fields.FieldByName(name); f.IsValid() { // FailoverOptions has no MaintNotificationsConfig
			f.Set(reflect.ValueOf(value))
		}
	}
	return o
}

// errURL repeats neither the URL nor the parser's error: any part of a malformed URL may
// be the password.
var errURL = errors.New("redislock: not a URL of Redis (not shown, since it may hold a password): want redis://user:password@host:6379/0, rediss:// or unix://, or with Sentinel redis://sentinel:26379/0?master_name=NAME&addr=SENTINEL2:26379")

// Connect makes a client for one server from a URL (redis://, rediss://, unix://),
// tuned for locks with this TTL. If the URL has a master_name, it names Sentinels, and the client is
// one of their master (see redis.ParseFailoverURL). Connect does not contact the server. Use the
// client for locks alone: its time-outs are too short for other requests.
func Connect(addr string, ttl time.Duration) (*redis.Client, error) {
	if u, err := url.Parse(addr); err == nil && u.Query().Has("master_name") {
		o, err := redis.ParseFailoverURL(addr)
		if err != nil || o.MasterName == "" {
			return nil, errURL
		}
		return redis.NewFailoverClient(Tune(o, ttl)), nil
	}
	o, err := redis.ParseURL(addr)
	if err != nil {
		return nil, errURL
	}
	return redis.NewClient(Tune(o, ttl)), nil
}

// Check refuses a client whose settings would break a lock. It accepts a client
// whose settings it cannot read, such as a wrapper.
func Check(client redis.UniversalClient, ttl time.Duration) error {
	if err := locking.CheckClient(client); err != nil {
		return fmt.Errorf("redislock: %w", err)
	}
	var errs []error
	switch c := client.(type) {
	case *redis.Ring:
		return errors.New("redislock: a Ring moves keys to another server when theirs does not answer: two holders at once")
	case *redis.Client:
		o := c.Options()
		if o.MaxRetries > 0 {
			errs = append(errs, fmt.Errorf("MaxRetries is %d (0 means 3): set -1, or the client repeats requests that are not scripts, such as those of Update", o.MaxRetries))
		}
		errs = append(errs, checkTimeouts(ttl, o.ContextTimeoutEnabled, o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout))
	case *redis.ClusterClient:
		// The client tries up to MaxRedirects times, which it needs to find the node. See once.
		o := c.Options()
		errs = append(errs, checkTimeouts(ttl, o.ContextTimeoutEnabled, o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("redislock: this client does not suit locks with TTL %v (see Tune):\n%w", ttl, err)
	}
	return nil
}

// checkTimeouts requires each time-out to be above 0 and at most half the TTL.
func checkTimeouts(ttl time.Duration, ctxEnabled bool, dial, read, write, pool time.Duration) error {
	var errs []error
	if !ctxEnabled {
		errs = append(errs, errors.New("ContextTimeoutEnabled is false: the client would ignore the deadline of a ctx"))
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
