package etcdlock

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"shop/locking"
	"shop/locking/locktest"
)

// minTTL is the minimum to which etcd with its default election timeout raises a TTL.
const minTTL = 2 * time.Second

// endpoints are those of the etcd on which the tests run.
func endpoints(t testing.TB) []string {
	t.Helper()
	return strings.Split(locktest.Env(t, "SHOP_ETCD_ENDPOINTS"), ",")
}

// target is an etcd, and a kind of Store, to run on.
type target struct {
	endpoints []string
	prefix    string
	broken    func(*Store) locking.Store // makes the wrong variant of a Store; nil: none
}

// open is a locktest.Open. Each Backend has a key space of its own.
func (g target) open(t testing.TB) locktest.Backend {
	t.Helper()
	client := g.client(t)
	g.prefix = newPrefix(t, client)
	return locktest.Backend{
		Open: func(ttl time.Duration) (locking.Store, error) { return g.locking(t, ttl) },
		Proxied: func(ttl time.Duration) locktest.Proxied {
			w := newProxy(t, g.endpoints[0])
			g := g
			g.endpoints = []string{w.addr}
			store, err := g.locking(t, ttl)
			if err != nil {
				t.Fatal(err)
			}
			return locktest.Proxied{Store: store, Lose: w.loseNext, Lost: w.lostSoFar, Delay: w.delayEach}
		},
		Restartable: func() (locktest.Backend, func()) {
			m := locktest.StartEtcd(t, 1)[0]
			g := g
			g.endpoints = []string{m.Addr}
			return g.open(t), m.Restart
		},
		Waiting: func(key string) int { return waiting(t, client, g.prefix, key) },
		BadTTLs: []time.Duration{time.Second, 1500 * time.Millisecond, 2500 * time.Millisecond},
	}
}

func (g target) client(t testing.TB) *clientv3.Client {
	t.Helper()
	client := dial(t, g.endpoints...)
	client.Watcher = &countingWatcher{Watcher: client.Watcher}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// countingWatcher counts the watches that a client has begun.
type countingWatcher struct {
	clientv3.Watcher
	begun atomic.Int64
}

func (w *countingWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	w.begun.Add(1)
	return w.Watcher.Watch(ctx, key, opts...)
}

// awaitWatch waits until a request of a Store watches its predecessor. A waiter in etcd is not
// enough: the request may not have its answer yet, and then the end of the server, of the
// connection or of ctx leaves its outcome unknown.
func awaitWatch(t testing.TB, s *Store) {
	t.Helper()
	locktest.Eventually(t, "the request watches its predecessor", func() bool { return s.client.Watcher.(*countingWatcher).begun.Load() > 0 })
}

func (g target) locking(t testing.TB, ttl time.Duration) (locking.Store, error) {
	store, err := g.store(t, ttl)
	if err != nil || g.broken == nil {
		return store, err
	}
	return g.broken(store), nil
}

// store makes a Store with a client of its own, as another process would have.
func (g target) store(t testing.TB, ttl time.Duration) (*Store, error) {
	client := g.client(t)
	var store *Store
	err := insist(func(bool) (err error) {
		store, err = New(t.Context(), client, ttl, Options{Prefix: g.prefix})
		return err
	})
	if err == nil {
		t.Cleanup(store.Close)
	}
	return store, err
}

// must is store, but fails the test on an error.
func (g target) must(t testing.TB, ttl time.Duration) *Store {
	t.Helper()
	store, err := g.store(t, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// shared is the etcd that all tests share, with a key space for this test.
func shared(t testing.TB) target {
	t.Helper()
	return at(t, endpoints(t)...)
}

func at(t testing.TB, endpoints ...string) target {
	g := target{endpoints: endpoints}
	g.prefix = newPrefix(t, g.client(t))
	return g
}

// newPrefix returns a prefix for this test alone, and removes the keys under it when
// the test ends.
func newPrefix(t testing.TB, client *clientv3.Client) string {
	t.Helper()
	prefix := "test-" + rand.Text()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = client.Delete(ctx, prefix, clientv3.WithPrefix()) // fails if the test has stopped its own server
	})
	return prefix
}

// waiting counts the waiters in etcd's queue for key behind the holder.
func waiting(t testing.TB, client *clientv3.Client, prefix, key string) int {
	t.Helper()
	return max(0, len(inQueue(t, client, prefix, key))-1)
}

// inQueue are the names in etcd's queue for key.
func inQueue(t testing.TB, client *clientv3.Client, prefix, key string) (names []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := &Store{prefix: prefix}
	answer, err := client.Get(ctx, s.queueOf(key), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range answer.Kvs {
		names = append(names, string(kv.Key))
	}
	return names
}

// isOf reports whether a name in a queue is that of a Lease.
func isOf(name string, l locking.Lease) bool {
	return strings.HasPrefix(l.Owner, name[strings.LastIndex(name, "/")+1:]+"-")
}

// take acquires keys that are free.
func take(t testing.TB, s locking.Store, keys ...string) (lease locking.Lease) {
	t.Helper()
	err := insist(func(again bool) (err error) {
		if again { // the first attempt may have left a waiter: wait for its removal
			lease, err = locking.Acquire(t.Context(), s, locking.Options{}, keys...)
		} else {
			lease, err = s.TryAcquire(t.Context(), keys...)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func wantBusy(t testing.TB, s locking.Store, keys ...string) {
	t.Helper()
	var lease locking.Lease
	err := insist(func(bool) (err error) {
		lease, err = s.TryAcquire(t.Context(), keys...)
		return err
	})
	if !errors.Is(err, locking.ErrBusy) {
		t.Fatalf("acquire %q: got %+v and %v, want ErrBusy", keys, lease, err)
	}
}

func release(t testing.TB, s locking.Store, l locking.Lease) {
	t.Helper()
	err := insist(func(again bool) error {
		err := s.Release(t.Context(), l)
		if again && errors.Is(err, locking.ErrLost) {
			return nil // the first call released it, and its answer was lost
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// dial makes a client without a log.
func dial(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(quiet(endpoints...))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func quiet(endpoints ...string) clientv3.Config {
	config := Config(endpoints...)
	config.Logger = zap.NewNop()
	return config
}
