// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/redislock"
	"shop/locking/redislock/redistest"
	"shop/locking/servertest"
)

// inRedis is a Backend of a library with a client of go-redis. Its proxy disturbs every script, and SET.
func inRedis(tune func(o *redis.Options, ttl time.Duration), open func(c *redis.Client, prefix string, ttl time.Duration) (locking.Store, error)) func(testing.TB) locktest.Backend {
	return func(t testing.TB) locktest.Backend {
		host, prefix := redistest.Host(t, redistest.URL(t)), redistest.Prefix(t, redistest.URL(t))
		var b func(host string) locktest.Backend
		b = func(host string) locktest.Backend {
			at := func(addr string, ttl time.Duration) (locking.Store, error) {
				o := &redis.Options{Addr: addr}
				tune(o, ttl)
				client := redis.NewClient(o)
				t.Cleanup(func() { _ = client.Close() })
				return open(client, prefix, ttl)
			}
			return locktest.Backend{
				Open: func(ttl time.Duration) (locking.Store, error) { return at(host, ttl) },
				Proxied: func(ttl time.Duration) locktest.Proxied {
					p := servertest.NewFaults(t, host, func(request []byte) bool {
						return bytes.Contains(request, []byte("eval")) || bytes.Contains(request, []byte("\r\nset\r\n")) || bytes.Contains(request, []byte("\r\nsetnx\r\n"))
					})
					store, err := at(p.Addr, ttl)
					if err != nil {
						t.Fatal(err)
					}
					return servertest.Disturbed(store, p)
				},
				Restartable: func() (locktest.Backend, func()) {
					_, s := redistest.Single(t)
					return b(s.Addr), s.Restart
				},
			}
		}
		return b(host)
	}
}

func tuned(o *redis.Options, ttl time.Duration) { redislock.Tune(o, ttl) }

// defaults leaves the client as it is.
func defaults(*redis.Options, time.Duration) {}

func openOurs(c *redis.Client, prefix string, ttl time.Duration) (locking.Store, error) {
	s, err := redislock.New(c, ttl, redislock.Options{Prefix: prefix})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// openWrong is SETNX with a TTL, and DEL.
func openWrong(c *redis.Client, prefix string, ttl time.Duration) (locking.Store, error) {
	return &foreign{take: func(ctx context.Context, key string) (held, error) {
		sent := time.Now()
		ok, err := c.SetNX(ctx, prefix+key, 1, ttl).Result()
		if err == nil && !ok {
			err = locking.ErrBusy
		}
		until := sent.Add(ttl)
		return held{
			owner: rand.Text(), until: func() time.Time { return until },
			keep: func(ctx context.Context) error {
				sent := time.Now()
				ok, err := c.PExpire(ctx, prefix+key, ttl).Result()
				if err == nil && !ok {
					return locking.ErrLost
				}
				until = sent.Add(ttl)
				return err
			},
			free: func(ctx context.Context) error {
				n, err := c.Del(ctx, prefix+key).Result()
				if err == nil && n == 0 {
					return locking.ErrLost
				}
				return err
			},
		}, err
	}}, nil
}

// openBSMStore is bsm/redislock. It does not say until when a lock is valid, but for the caller that asks Redis: so the adapter counts
// from before the request.
func openBSMStore(c *redis.Client, prefix string, ttl time.Duration) (locking.Store, error) {
	locks := bsm.New(c)
	return &foreign{take: func(ctx context.Context, key string) (held, error) {
		sent := time.Now()
		l, err := locks.Obtain(ctx, prefix+key, ttl, nil)
		if err != nil {
			return held{}, as(locking.ErrBusy, err, bsm.ErrNotObtained)
		}
		return held{
			owner: l.Token(), until: func() time.Time { return sent.Add(ttl) },
			keep: func(ctx context.Context) error {
				now := time.Now()
				err := l.Refresh(ctx, ttl, nil)
				if err == nil {
					sent = now
				}
				return as(locking.ErrLost, err, bsm.ErrNotObtained)
			},
			free: func(ctx context.Context) error { return as(locking.ErrLost, l.Release(ctx), bsm.ErrLockNotHeld) },
		}, nil
	}}, nil
}

// openRedsyncStore is redsync with one pool.
func openRedsyncStore(c *redis.Client, prefix string, ttl time.Duration) (locking.Store, error) {
	locks := redsync.New(goredis.NewPool(c))
	return &foreign{take: func(ctx context.Context, key string) (held, error) {
		m := locks.NewMutex(prefix+key, redsync.WithExpiry(ttl))
		if err := m.TryLockContext(ctx); err != nil {
			return held{}, taken(locking.ErrBusy, err)
		}
		return held{
			owner: m.Value(), until: m.Until,
			keep: func(ctx context.Context) error {
				ok, err := m.ExtendContext(ctx)
				return kept(ok, taken(locking.ErrLost, err, redsync.ErrExtendFailed))
			},
			free: func(ctx context.Context) error {
				ok, err := m.UnlockContext(ctx)
				return kept(ok, taken(locking.ErrLost, err, redsync.ErrLockAlreadyExpired))
			},
		}, nil
	}}, nil
}

func kept(ok bool, err error) error {
	if err == nil && !ok {
		return locking.ErrLost
	}
	return err
}

// taken is as, with redsync's errors for a lock that another has.
func taken(kind, err error, means ...error) error {
	var quorum *redsync.ErrTaken
	var node *redsync.ErrNodeTaken
	if errors.As(err, &quorum) || errors.As(err, &node) {
		return fmt.Errorf("%w (%w)", kind, err)
	}
	return as(kind, err, means...)
}

// rueidisBackend is rueidislock: it renews a lock by itself, and ends the context of a holder that has lost it.
func rueidisBackend(t testing.TB) locktest.Backend {
	prefix := redistest.Prefix(t, redistest.URL(t))
	return locktest.Backend{Open: func(ttl time.Duration) (locking.Store, error) {
		o := rueidis.MustParseURL(redistest.URL(t))
		locks, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: o, KeyPrefix: prefix, KeyMajority: 1, KeyValidity: ttl, NoLoopTracking: true})
		if err != nil {
			return nil, err
		}
		t.Cleanup(locks.Close)
		return &foreign{take: func(ctx context.Context, key string) (held, error) {
			life, end := context.WithCancel(context.WithoutCancel(ctx)) // its end is that of the lock
			waiting := context.AfterFunc(ctx, end)
			has, cancel, err := locks.TryWithContext(life, key)
			if err == nil && !waiting() {
				cancel()
				err = ctx.Err()
			}
			if err != nil {
				end()
				return held{}, as(locking.ErrBusy, err, rueidislock.ErrNotLocked)
			}
			keep := func(context.Context) error {
				if has.Err() != nil {
					return locking.ErrLost
				}
				return nil
			}
			return held{owner: rand.Text(), keep: keep, free: func(ctx context.Context) error {
				err := keep(ctx)
				cancel()
				end()
				return err
			}}, nil
		}}, nil
	}}
}
