package transfer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"shop/compose/local/stack"
	"shop/locking"
	"shop/locking/wrong/leaseid"
	"shop/transfer"
)

// source names the shared etcd to the accounts.
const source = "test-cluster"

// etcdStore is a lock on the real etcd with just what these tests need of one:
// all keys in one transaction, and its revision for a fence.
type etcdStore struct {
	client *clientv3.Client
	prefix string
	ttl    time.Duration
}

var _ locking.Store = (*etcdStore)(nil)

func (s *etcdStore) TryAcquire(ctx context.Context, keys ...string) (l locking.Lease, err error) {
	sent := time.Now()
	if l.Keys, err = locking.SortedKeys(keys); err != nil {
		return l, err
	}
	var free []clientv3.Cmp
	for _, key := range l.Keys {
		free = append(free, clientv3.Compare(clientv3.CreateRevision(s.prefix+key), "=", 0))
	}
	lease, err := s.client.Grant(ctx, int64(s.ttl/time.Second))
	if err != nil {
		return l, err
	}
	l.Owner = fmt.Sprintf("%x", int64(lease.ID))
	var take []clientv3.Op
	for _, key := range l.Keys {
		take = append(take, clientv3.OpPut(s.prefix+key, l.Owner, clientv3.WithLease(lease.ID)))
	}
	done, err := s.client.Txn(ctx).If(free...).Then(take...).Commit()
	if err == nil && !done.Succeeded {
		err = locking.ErrBusy
	}
	if err != nil {
		_ = s.Release(context.WithoutCancel(ctx), l)
		return l, err
	}
	l.Fence, l.Until = locking.Fence(done.Header.Revision), sent.Add(s.ttl-s.ttl/10)
	return l, nil
}

func (s *etcdStore) Renew(ctx context.Context, l locking.Lease) (locking.Lease, error) {
	sent := time.Now()
	if _, err := s.client.KeepAliveOnce(ctx, leaseOf(l)); err != nil {
		return l, lost(err)
	}
	l.Until = sent.Add(s.ttl - s.ttl/10)
	return l, nil
}

func (s *etcdStore) Release(ctx context.Context, l locking.Lease) error {
	_, err := s.client.Revoke(ctx, leaseOf(l))
	return lost(err)
}

func leaseOf(l locking.Lease) (id clientv3.LeaseID) {
	_, _ = fmt.Sscanf(l.Owner, "%x", &id)
	return id
}

func lost(err error) error {
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return locking.ErrLost
	}
	return err
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

// shared is a client of the shared etcd.
func shared(t testing.TB) *clientv3.Client {
	t.Helper()
	return connect(t, strings.Split(env(t, "SHOP_ETCD_ENDPOINTS"), ",")...)
}

// locksOn makes a store with keys of its own. The TTL is long beside the
// tests: whoever loses his lease here loses it to an operator.
func locksOn(client *clientv3.Client) *etcdStore {
	return &etcdStore{client: client, prefix: uuid.NewString() + "/", ttl: 30 * time.Second}
}

// withStores fills in the lock stores that cfg's strategy needs.
func withStores(t testing.TB, cfg transfer.Config) transfer.Config {
	t.Helper()
	cfg.Source = cmp.Or(cfg.Source, source)
	switch {
	case cfg.Strategy == "lease-id-fence" && cfg.LeaseIDs == nil:
		cfg.LeaseIDs = leaseIDs(t, shared(t), uuid.NewString()+"/")
	case strings.HasPrefix(cfg.Strategy, "etcd-") && cfg.Locks == nil:
		cfg.Locks = locksOn(shared(t))
	}
	return cfg
}

// steal ends the leases of all holders, as an operator does who thinks that they hang.
func (s *etcdStore) steal(ctx context.Context) error {
	held, err := s.client.Get(ctx, s.prefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	if len(held.Kvs) == 0 {
		return errors.New("nobody holds a lock")
	}
	for _, kv := range held.Kvs {
		if _, err := s.client.Revoke(ctx, clientv3.LeaseID(kv.Lease)); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return err
		}
	}
	return nil
}

func leaseIDs(t testing.TB, client *clientv3.Client, prefix string) locking.Store {
	t.Helper()
	store, err := leaseid.New(client, prefix, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// threeMembers starts a cluster for one test, and returns a client of each member.
func threeMembers(t *testing.T) (clients []*clientv3.Client) {
	t.Helper()
	all, err := stack.Attach(env(t, "SHOP_STACK"))
	if err != nil {
		t.Fatal(err)
	}
	first, err := all.Private(t.Context(), "etcd3")
	if err != nil {
		t.Fatal(err)
	}
	servers, err := all.Servers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, member := range servers {
		if member.Env["SHOP_ETCD_ENDPOINTS"] != first.Env["SHOP_ETCD_ENDPOINTS"] {
			continue
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if err := member.Kill(ctx); err != nil {
				t.Error(err)
			}
		})
		clients = append(clients, connect(t, member.Addr))
	}
	return clients
}

// unreachable is a lock store whose server is not there.
func unreachable(t testing.TB) locking.Store {
	t.Helper()
	return locksOn(connect(t, "127.0.0.1:1"))
}
