// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/gofrs/flock"
	"github.com/jackc/pgx/v5/pgxpool"
	gomysqllock "github.com/sanketplus/go-mysql-lock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/redislock"
	"shop/locking/servertest"
)

// libraries are the locks of the report.
func libraries() []library {
	leases := locktest.Promises{Expires: true, MinTTL: time.Millisecond}
	oursToo := locktest.Promises{Expires: true, Fences: true, FencePersists: true, MultiKey: true, MinTTL: redislock.TTLMin}
	return []library{
		{ours, "", oursToo, nil, inRedis(tuned, openOurs)},
		{wrong, "", leases, nil, inRedis(defaults, openWrong)},
		{"bsm/redislock", "github.com/bsm/redislock", leases, []string{"Reply/", "Ctx/", "Until/", "HandOver/"}, inRedis(defaults, openBSMStore)},
		{"redsync", "github.com/go-redsync/redsync/v4", leases, []string{"Reply/", "Ctx/", "HandOver/"}, inRedis(defaults, openRedsyncStore)},
		{"rueidislock", "github.com/redis/rueidis", locktest.Promises{}, []string{"Ctx/", "HandOver/"}, rueidisBackend},
		{"etcd concurrency", "go.etcd.io/etcd/client/v3", locktest.Promises{}, []string{"HandOver/", "Keys/"}, concurrencyBackend},
		{"go-zookeeper Lock", "github.com/go-zookeeper/zk", locktest.Promises{}, []string{"Ctx/", "HandOver/", "Keys/", "Lost/", "Own/"}, zookeeperBackend},
		{"go-mysql-lock", "github.com/sanketplus/go-mysql-lock", locktest.Promises{}, []string{"HandOver/", "Keys/"}, goMySQLBackend},
		{"gofrs/flock", "github.com/gofrs/flock", locktest.Promises{}, []string{"Ctx/", "HandOver/"}, flockBackend},
		{"pg_advisory_lock", "", locktest.Promises{}, []string{"HandOver/", "Keys/"}, advisoryBackend},
	}
}

// concurrencyBackend is etcd's Mutex, with a session for each lock, as its examples have it: Mutexes of one session do not exclude
// each other.
func concurrencyBackend(t testing.TB) locktest.Backend {
	prefix := "libraries-" + rand.Text()
	return locktest.Backend{Open: func(ttl time.Duration) (locking.Store, error) {
		client, err := etcdClient()
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = client.Close() })
		return &foreign{take: func(ctx context.Context, key string) (held, error) {
			session, err := concurrency.NewSession(client, concurrency.WithTTL(max(2, int(ttl.Seconds()))))
			if err != nil {
				return held{}, err
			}
			m := concurrency.NewMutex(session, prefix+key)
			if err := m.TryLock(ctx); err != nil {
				_ = session.Close()
				return held{}, as(locking.ErrBusy, err, concurrency.ErrLocked)
			}
			return held{
				owner: rand.Text(),
				keep: func(ctx context.Context) error {
					answer, err := client.Txn(ctx).If(m.IsOwner()).Then(clientv3.OpGet(m.Key(), clientv3.WithCountOnly())).Commit()
					if err == nil && !answer.Succeeded {
						return locking.ErrLost
					}
					return err
				},
				free: func(ctx context.Context) error {
					defer session.Close()
					return as(locking.ErrLost, m.Unlock(ctx), concurrency.ErrLockReleased)
				},
			}, nil
		}}, nil
	}}
}

// zookeeperBackend is the Lock of the client library. It only waits: an attempt that has not ended after a moment is busy, and gives
// the lock back when it has it.
func zookeeperBackend(t testing.TB) locktest.Backend {
	const moment = 150 * time.Millisecond
	prefix := "/libraries-" + rand.Text() + "/"
	return locktest.Backend{Open: func(ttl time.Duration) (locking.Store, error) {
		conn, _, err := zk.Connect(strings.Split(servertest.Env(t, zookeeperServers), ","), max(ttl, 4*time.Second), zk.WithLogInfo(false))
		if err != nil {
			return nil, err
		}
		t.Cleanup(conn.Close)
		return &foreign{take: func(ctx context.Context, key string) (held, error) {
			l, granted := zk.NewLock(conn, prefix+named(key), zk.WorldACL(zk.PermAll)), make(chan error, 1)
			go func() { granted <- l.Lock() }()
			select {
			case err := <-granted:
				if err != nil {
					return held{}, err
				}
			case <-time.After(moment):
				go func() {
					if <-granted == nil {
						_ = l.Unlock()
					}
				}()
				return held{}, locking.ErrBusy
			}
			return held{
				owner: rand.Text(),
				keep:  func(context.Context) error { return nil }, // it does not say that a lock was lost
				free:  func(context.Context) error { return as(locking.ErrLost, l.Unlock(), zk.ErrNotLocked) },
			}, nil
		}}, nil
	}}
}

// named is a name of a file or a node for any key.
func named(key string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(key))) }

// goMySQLBackend is GET_LOCK with a context that ends when its connection is lost.
func goMySQLBackend(t testing.TB) locktest.Backend {
	prefix := rand.Text()[:8] // a name of GET_LOCK has 64 characters
	return locktest.Backend{Open: func(time.Duration) (locking.Store, error) {
		db, err := mysqlPool(t.Context())
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = db.Close() })
		locks := gomysqllock.NewMysqlLocker(db)
		return &foreign{take: func(ctx context.Context, key string) (held, error) {
			l, err := locks.ObtainTimeoutContext(ctx, prefix+key, 0)
			if err != nil {
				return held{}, as(locking.ErrBusy, err, gomysqllock.ErrMySQLTimeout)
			}
			return held{
				owner: rand.Text(),
				keep: func(context.Context) error {
					select {
					case <-l.GetContext().Done():
						return locking.ErrLost
					case <-time.After(10 * time.Millisecond): // it ends a moment after the release
						return nil
					}
				},
				free: func(context.Context) error { return as(locking.ErrLost, l.Release(), gomysqllock.ErrLockReleased) },
			}, nil
		}}, nil
	}}
}

// flockBackend is gofrs/flock, with a file for each key.
func flockBackend(t testing.TB) locktest.Backend {
	dir := t.TempDir()
	return locktest.Backend{Open: func(time.Duration) (locking.Store, error) {
		return &foreign{take: func(_ context.Context, key string) (held, error) {
			l := flock.New(filepath.Join(dir, named(key)))
			locked, err := l.TryLock()
			if err == nil && !locked {
				err = locking.ErrBusy
			}
			if err != nil {
				return held{}, err
			}
			keep := func(context.Context) error {
				if !l.Locked() {
					return locking.ErrLost
				}
				return nil
			}
			return held{owner: rand.Text(), keep: keep, free: func(ctx context.Context) error {
				return errors.Join(keep(ctx), l.Unlock())
			}}, nil
		}}, nil
	}}
}

// advisoryBackend is an advisory lock of a session of PostgreSQL. The adapter knows which locks it has released: their connections are
// others' now.
func advisoryBackend(t testing.TB) locktest.Backend {
	prefix := rand.Text()
	return locktest.Backend{Open: func(time.Duration) (locking.Store, error) {
		config, err := pgxpool.ParseConfig(servertest.Env(t, "SHOP_POSTGRES_URL"))
		if err != nil {
			return nil, err
		}
		config.MaxConns = 40
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { go pool.Close() }) // which waits for the locks that a failed check has left
		return &foreign{take: func(ctx context.Context, key string) (held, error) {
			conn, err := pool.Acquire(ctx)
			if err != nil {
				return held{}, err
			}
			var locked bool
			err = conn.QueryRow(ctx, `SELECT pg_try_advisory_lock(hashtextextended($1, 0))`, prefix+key).Scan(&locked)
			if err == nil && !locked {
				err = locking.ErrBusy
			}
			if err != nil {
				conn.Release()
				return held{}, err
			}
			var released atomic.Bool
			return held{
				owner: rand.Text(),
				keep: func(ctx context.Context) error {
					if released.Load() {
						return locking.ErrLost
					}
					return conn.Ping(ctx)
				},
				free: func(ctx context.Context) error {
					if released.Swap(true) {
						return locking.ErrLost
					}
					defer conn.Release()
					var unlocked bool
					err := conn.QueryRow(ctx, `SELECT pg_advisory_unlock(hashtextextended($1, 0))`, prefix+key).Scan(&unlocked)
					return kept(unlocked, err)
				},
			}, nil
		}}, nil
	}}
}
