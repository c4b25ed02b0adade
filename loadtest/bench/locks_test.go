// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	mathrand "math/rand/v2"
	"net/url"
	"os"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"shop/locking"
	"shop/locking/etcdlock"
	"shop/locking/redislock"
	"shop/locking/redisqueue"
)

// ttl of each lease. Nothing expires during a measurement.
const ttl = 10 * time.Second

// A locker runs a section of the program while it holds a key, and waits for the key if another holder has it.
type locker interface {
	hold(ctx context.Context, key string, section func()) error
	close()
}

// A lock is one of this repository or of another library.
type lock struct {
	name   string
	server string // is asked how many requests it has received
	ours   bool
	open   func(ctx context.Context) (locker, error)
}

var locks = []lock{
	{"redislock", "redis", true, openRedislock},
	{"redisqueue-fair", "redis", true, openFair},
	{"raw-SET-NX-PX", "redis", false, openRaw},
	{"bsm-redislock", "redis", false, openBSM},
	{"redsync", "redis", false, openRedsync},
	{"rueidislock", "redis", false, openRueidis},
	{"etcdlock", "etcd", true, openEtcdlock},
	{"etcd-concurrency", "etcd", false, openConcurrency},
	{"pglock-sessions", "postgres", true, openSessions},
	{"pg_advisory_lock", "postgres", false, openAdvisory},
	{"pglock-table", "postgres", true, openTable},
	{"polled-table", "postgres", false, openPolledTable},
	{"mysqllock-sessions", "mysql", true, openMySQLSessions},
	{"GET_LOCK", "mysql", false, openGetLock},
	{"go-mysql-lock", "mysql", false, openGoMySQLLock},
	{"mysqllock-table", "mysql", true, openMySQLTable},
	{"polled-MySQL-table", "mysql", false, openPolledMySQLTable},
	{"mongolock", "mongo", true, openMongolock},
	{"polled-document", "mongo", false, openDocument},
	{"zklock", "zookeeper", true, openZklock},
	{"go-zookeeper-Lock", "zookeeper", false, openGoZookeeper},
}

// opened opens the lock, and lets goroutines take one key, each once: they connect, and load scripts and statements.
func (l lock) opened(b *testing.B, goroutines int) locker {
	b.Helper()
	opened, err := l.open(b.Context())
	must(b, err)
	b.Cleanup(opened.close)
	first, key := errgroup.Group{}, fresh()
	for range goroutines {
		first.Go(func() error { return opened.hold(b.Context(), key, func() {}) })
	}
	must(b, first.Wait())
	return opened
}

// locked is a locker made of two functions.
type locked struct {
	take func(ctx context.Context, key string) (func() error, error)
	end  func()
}

func (l locked) hold(ctx context.Context, key string, section func()) error {
	unlock, err := l.take(ctx, key)
	if err != nil {
		return err
	}
	section()
	return unlock()
}

func (l locked) close() { l.end() }

// store is a Store. A Store that is no Waiter is polled.
func store(s locking.Store, end func()) locker {
	return locked{func(ctx context.Context, key string) (func() error, error) {
		lease, err := locking.Acquire(ctx, s, locking.Options{Backoff: locking.Backoff{Base: retryEvery, Max: retryEvery}}, key)
		return func() error { return s.Release(context.WithoutCancel(ctx), lease) }, err
	}, end}
}

func openRedislock(context.Context) (locker, error) {
	return onRedis(func(c redis.UniversalClient, o redislock.Options) (redisStore, error) {
		return redislock.New(c, ttl, o)
	})
}

func openFair(context.Context) (locker, error) {
	return onRedis(newFair)
}

func newFair(c redis.UniversalClient, o redislock.Options) (redisStore, error) {
	return redisqueue.NewFair(c, ttl, o)
}

type redisStore interface {
	locking.Store
	Close()
}

func onRedis(open func(redis.UniversalClient, redislock.Options) (redisStore, error)) (locker, error) {
	s, end, err := redisStoreOf(open)
	if err != nil {
		return nil, err
	}
	return store(s, end), nil
}

// redisStoreOf opens a store. end closes it and its client.
func redisStoreOf(open func(redis.UniversalClient, redislock.Options) (redisStore, error)) (s redisStore, end func(), err error) {
	u, err := url.Parse(os.Getenv("SHOP_REDIS_URL"))
	if err != nil {
		return nil, nil, err
	}
	query := u.Query()
	query.Set("pool_size", "64") // as redisClient
	u.RawQuery = query.Encode()
	client, err := redislock.Connect(u.String(), ttl)
	if err != nil {
		return nil, nil, err
	}
	if s, err = open(client, redislock.Options{Prefix: "bench"}); err != nil {
		return nil, nil, err
	}
	return s, func() { s.Close(); _ = client.Close() }, nil
}

func redisClient() (*redis.Client, error) {
	o, err := redis.ParseURL(os.Getenv("SHOP_REDIS_URL"))
	if err != nil {
		return nil, err
	}
	o.PoolSize = 64
	return redis.NewClient(o), nil
}

// retryEvery is the wait between two attempts of all that poll, except redsync, which has its own default.
const retryEvery = 10 * time.Millisecond

// openRaw is the least that is a lock: SET NX PX, and compare and delete.
func openRaw(context.Context) (locker, error) {
	client, err := redisClient()
	if err != nil {
		return nil, err
	}
	release := redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	return locked{func(ctx context.Context, key string) (func() error, error) {
		owner := rand.Text()
		for {
			ok, err := client.SetNX(ctx, "raw:"+key, owner, ttl).Result()
			if ok || err != nil {
				return func() error {
					return release.Run(context.WithoutCancel(ctx), client, []string{"raw:" + key}, owner).Err()
				}, err
			}
			if err := pause(ctx, retryEvery); err != nil {
				return nil, err
			}
		}
	}, func() { _ = client.Close() }}, nil
}

func openBSM(context.Context) (locker, error) {
	client, err := redisClient()
	if err != nil {
		return nil, err
	}
	locks := bsm.New(client)
	return locked{func(ctx context.Context, key string) (func() error, error) {
		l, err := locks.Obtain(ctx, "bsm:"+key, ttl, &bsm.Options{RetryStrategy: bsm.LinearBackoff(retryEvery)})
		return func() error { return l.Release(context.WithoutCancel(ctx)) }, err
	}, func() { _ = client.Close() }}, nil
}

func openRedsync(context.Context) (locker, error) {
	client, err := redisClient()
	if err != nil {
		return nil, err
	}
	sync := redsync.New(goredis.NewPool(client))
	return locked{func(ctx context.Context, key string) (func() error, error) {
		m := sync.NewMutex("redsync:"+key, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt32))
		err := m.LockContext(ctx)
		return func() error { _, err := m.UnlockContext(context.WithoutCancel(ctx)); return err }, err
	}, func() { _ = client.Close() }}, nil
}

func openRueidis(context.Context) (locker, error) {
	o, err := rueidis.ParseURL(os.Getenv("SHOP_REDIS_URL"))
	if err != nil {
		return nil, err
	}
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: o, KeyMajority: 1, KeyValidity: ttl, NoLoopTracking: true})
	if err != nil {
		return nil, err
	}
	return locked{func(ctx context.Context, key string) (func() error, error) {
		for { // rueidislock 1.0.79 may miss the message of a release, and then waits for a free key for ever
			limited, end := context.WithCancel(ctx) // its end would also end the lock
			limit := time.AfterFunc(time.Second, end)
			_, cancel, err := l.WithContext(limited, key)
			if err == nil && limit.Stop() {
				return func() error { cancel(); end(); return nil }, nil
			}
			if err == nil {
				cancel()
			}
			end()
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				return nil, err
			}
		}
	}, l.Close}, nil
}

func etcdClient() (*clientv3.Client, error) {
	config := etcdlock.Config(os.Getenv("SHOP_ETCD_ENDPOINTS"))
	config.Logger = zap.NewNop() // it logs each request that the end of a measurement cuts off
	return clientv3.New(config)
}

func openEtcdlock(ctx context.Context) (locker, error) {
	client, err := etcdClient()
	if err != nil {
		return nil, err
	}
	s, err := etcdlock.New(ctx, client, ttl, etcdlock.Options{Prefix: "bench"})
	if err != nil {
		return nil, err
	}
	return store(s, func() { s.Close(); _ = client.Close() }), nil
}

// openConcurrency is etcd's Mutex on one session, with a mutex of this process in front, as it needs one: its
// Mutexes on one session do not exclude each other.
func openConcurrency(context.Context) (locker, error) {
	client, err := etcdClient()
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(client, concurrency.WithTTL(int(ttl.Seconds())))
	if err != nil {
		return nil, err
	}
	local := make(chan struct{}, 1)
	return locked{func(ctx context.Context, key string) (func() error, error) {
		select {
		case local <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		m := concurrency.NewMutex(session, "/concurrency/"+key)
		if err := m.Lock(ctx); err != nil {
			<-local
			return nil, err
		}
		return func() error {
			defer func() { <-local }()
			return m.Unlock(context.WithoutCancel(ctx))
		}, nil
	}, func() { _ = session.Close(); _ = client.Close() }}, nil
}

// pause waits for d, with a jitter of half of it.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d/2 + mathrand.N(d/2)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
