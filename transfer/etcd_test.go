// SPDX-License-Identifier: MIT

package transfer_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"shop/locking"
	"shop/locking/etcdlock"
	"shop/locking/servertest"
	"shop/locking/wrong/leaseid"
	"shop/transfer"
)

// epoch names the shared etcd to the accounts.
const epoch = "test-cluster"

// locks is a private prefix for lock names in an etcd.
type locks struct {
	client *clientv3.Client
	prefix string
	ttl    time.Duration
}

// locksAt returns locks in the etcd at endpoints. The TTL is longer than the tests take: a
// holder loses its locks only to steal.
func locksAt(t testing.TB, endpoints ...string) *locks {
	t.Helper()
	return &locks{client: connect(t, endpoints...), prefix: uuid.NewString(), ttl: 30 * time.Second}
}

// sharedLocks returns locks in the shared etcd.
func sharedLocks(t testing.TB) *locks {
	t.Helper()
	return locksAt(t, strings.Split(servertest.Env(t, "SHOP_ETCD_ENDPOINTS"), ",")...)
}

// store opens a store, as each process does.
func (l *locks) store(t testing.TB) *etcdlock.Store {
	t.Helper()
	store, err := etcdlock.New(t.Context(), l.client, l.ttl, etcdlock.Options{Prefix: l.prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// steal deletes the keys of all holders, as an operator does who believes that the holders
// hang. The holders notice it when they renew.
func (l *locks) steal(ctx context.Context) error {
	// In the names of queues, a digit follows the prefix.
	gone, err := l.client.Delete(ctx, l.prefix+"/0", clientv3.WithRange(l.prefix+"/:"))
	if err == nil && gone.Deleted == 0 {
		err = errors.New("no lock is held")
	}
	return err
}

// withStores fills in the lock stores that cfg's strategy needs.
func (b *bank) withStores(cfg transfer.Config) transfer.Config {
	b.T.Helper()
	cfg.Epoch = cmp.Or(cfg.Epoch, epoch)
	needsEtcd := strings.HasPrefix(cfg.Strategy, "etcd-") || cfg.Strategy == "lease-id-fence" || cfg.Strategy == "token-per-transfer" || cfg.Strategy == "combined"
	if needsEtcd && b.locks == nil {
		b.locks = sharedLocks(b.T)
	}
	switch {
	case cfg.Strategy == "lease-id-fence" && cfg.LeaseIDs == nil:
		cfg.LeaseIDs = leaseIDs(b.T, b.locks.client, b.locks.prefix)
	case needsEtcd && cfg.Locks == nil:
		cfg.Locks = b.locks.store(b.T)
	}
	return cfg
}

func connect(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func leaseIDs(t testing.TB, client *clientv3.Client, prefix string) locking.Store {
	t.Helper()
	store, err := leaseid.New(client, prefix, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// unasked is a lock store that must not be used: it panics.
type unasked struct{ locking.Store }
