// SPDX-License-Identifier: MIT

package held_test

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/etcdlock"
	"shop/locking/held"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/locking/pglock"
	"shop/locking/redislock"
	"shop/locking/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 30 * time.Second

// server is a store of locks, one of another process, and how they are listed.
type server struct {
	locks, other locking.Store
	held         held.Store
}

// closing closes a store when the test ends.
func closing[S interface {
	locking.Store
	Close()
}](t *testing.T) func(S, error) S {
	return func(s S, err error) S {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
}

// servers returns each, with names of its own.
func servers(t *testing.T) map[string]server {
	t.Helper()
	prefix := "held-" + rand.Text() + "[*]"
	client, err := redislock.Connect(servertest.Env(t, "SHOP_REDIS_URL"), ttl)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	redisStore := func() locking.Store {
		return closing[*driver.Store](t)(redislock.New(client, ttl, redislock.Options{Prefix: prefix}))
	}
	etcd, err := clientv3.New(etcdlock.Config(strings.Split(servertest.Env(t, "SHOP_ETCD_ENDPOINTS"), ",")...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Close() })
	etcdStore := func() locking.Store {
		return closing[*etcdlock.Store](t)(etcdlock.New(t.Context(), etcd, ttl, etcdlock.Options{Prefix: prefix}))
	}
	d := pgtest.New(t, "locking/pglock")
	postgresStore := func() locking.Store {
		return closing[*driver.Store](t)(pglock.New(d.Pool, ttl, pglock.Options{}))
	}
	return map[string]server{
		"redis":    {redisStore(), redisStore(), held.Redis{Client: client, Options: redislock.Options{Prefix: prefix}}},
		"etcd":     {etcdStore(), etcdStore(), held.Etcd{Client: etcd, Prefix: prefix}},
		"postgres": {postgresStore(), postgresStore(), held.Postgres{Pool: d.Pool}},
	}
}

func TestList_HasEachLockThatIsHeld(t *testing.T) {
	t.Parallel()
	for name, s := range servers(t) {
		if locks, err := s.held.List(t.Context()); err != nil || len(locks) != 0 {
			t.Errorf("%s: %+v, %v, want none", name, locks, err)
		}
		leases := map[string]locking.Lease{}
		keys := []string{"a", "a/b", "lock:{x}1:", "日本"}
		for _, key := range keys {
			leases[key] = locktest.Taken(t, s.locks, key)
		}
		released := locktest.Taken(t, s.locks, "released")
		locktest.Released(t, s.locks, released)
		locks, err := s.held.List(t.Context())
		if err != nil || len(locks) != len(keys) {
			t.Fatalf("%s: %+v, %v, want %q", name, locks, err, keys)
		}
		for n, l := range locks {
			lease := leases[l.Key]
			known := strings.Contains(lease.Owner, l.Owner) // etcd lists its lease, which is a part of the owner
			if l.Key != keys[n] || l.Fence != lease.Fence || !known || l.Owner == "" || l.Left <= 0 || l.Left > ttl || l.Waiters != 0 {
				t.Errorf("%s: %+v, want the lease %+v", name, l, lease)
			}
		}
	}
}

func TestList_CountsWaiters(t *testing.T) {
	t.Parallel()
	all := servers(t)
	delete(all, "postgres")
	for name, s := range all {
		locktest.Taken(t, s.locks, "k")
		waiter := locktest.Beside(func() (locking.Lease, error) { return locking.Acquire(t.Context(), s.other, locking.Options{}, "k") })
		locktest.Eventually(t, name+" lists a waiter", func() bool {
			locks, err := s.held.List(t.Context())
			return err == nil && len(locks) == 1 && locks[0].Waiters == 1
		})
		if ended, err := s.held.End(t.Context(), "k"); err != nil || !ended {
			t.Errorf("%s: %v, %v", name, ended, err)
		}
		if next, err := (<-waiter).Pair(); err != nil || len(next.Keys) != 1 {
			t.Errorf("%s: the waiter: %+v, %v, want the key", name, next, err)
		}
	}
}

// What an operator ends is free for others at once, and the holder hears of it.
func TestEnd_FreesTheKeyAndTheHolderHearsOfIt(t *testing.T) {
	t.Parallel()
	for name, s := range servers(t) {
		old := locktest.Taken(t, s.locks, "k")
		if ended, err := s.held.End(t.Context(), "other"); err != nil || ended {
			t.Errorf("%s: %v, %v, want no lock", name, ended, err)
		}
		if ended, err := s.held.End(t.Context(), "k"); err != nil || !ended {
			t.Errorf("%s: %v, %v, want it ended", name, ended, err)
		}
		if locks, err := s.held.List(t.Context()); err != nil || len(locks) != 0 {
			t.Errorf("%s: %+v, %v, want none", name, locks, err)
		}
		if _, err := s.locks.Renew(t.Context(), old); !errors.Is(err, locking.ErrLost) {
			t.Errorf("%s: renew: %v, want ErrLost", name, err)
		}
		if next := locktest.Taken(t, s.locks, "k"); next.Fence <= old.Fence {
			t.Errorf("%s: fence %d after %d", name, next.Fence, old.Fence)
		}
	}
}

// A key without a TTL, as SETNX leaves it behind.
func TestList_TellsALockWithoutATTL(t *testing.T) {
	t.Parallel()
	s := servers(t)["redis"].held.(held.Redis)
	name := s.Options.Scope("k") + "lock:k"
	if err := s.Client.Set(t.Context(), name, "host-1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if locks, err := s.List(t.Context()); err != nil || len(locks) != 1 || locks[0].Left >= 0 {
		t.Errorf("%+v, %v, want one without a TTL", locks, err)
	}
	if ended, err := s.End(t.Context(), "k"); err != nil || !ended {
		t.Errorf("%v, %v", ended, err)
	}
}
