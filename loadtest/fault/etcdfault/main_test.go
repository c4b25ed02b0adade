package etcdfault

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"shop/loadtest/fault"
	"shop/locking/etcdlock"
)

var (
	_ fault.Fault = LeasesRevoked{}
	_ fault.Fault = LeaderKill{}
	_ fault.Fault = NoQuorum{}
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// env reads an address. A missing server fails the test: nothing is skipped.
func env(t testing.TB, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: run the tests with `make test`, or `go run ./compose/local exec -- go test ./...`", name)
	}
	return v
}

func connect(t *testing.T, endpoints ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// etcd is names of a test's own in the shared etcd.
type etcd struct {
	*testing.T
	client *clientv3.Client
	prefix string
}

func shared(t *testing.T) etcd {
	client := connect(t, strings.Split(env(t, "SHOP_ETCD_ENDPOINTS"), ",")...)
	e := etcd{t, client, "etcdfault-" + uuid.NewString()}
	t.Cleanup(func() {
		if _, err := client.Delete(context.Background(), e.prefix, clientv3.WithPrefix()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// store is that of a replica.
func (e etcd) store(prefix string) *etcdlock.Store {
	e.Helper()
	store, err := etcdlock.New(e.Context(), e.client, 20*time.Second, etcdlock.Options{Prefix: prefix})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(store.Close)
	return store
}

func (e etcd) lease() clientv3.LeaseID {
	e.Helper()
	granted, err := e.client.Grant(e.Context(), 60)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _, _ = e.client.Revoke(context.Background(), granted.ID) })
	return granted.ID
}

// enter puts a new lease into the queues of locks, as an attempt of etcdlock does.
func (e etcd) enter(prefix string, locks ...string) clientv3.LeaseID {
	e.Helper()
	lease := e.lease()
	var puts []clientv3.Op
	for _, lock := range locks {
		puts = append(puts, clientv3.OpPut(queue(prefix, lock)+uuid.NewString(), "", clientv3.WithLease(lease)))
	}
	if _, err := e.client.Txn(e.Context()).Then(puts...).Commit(); err != nil {
		e.Fatal(err)
	}
	return lease
}

func (e etcd) lives(lease clientv3.LeaseID) bool {
	e.Helper()
	left, err := e.client.TimeToLive(e.Context(), lease)
	if err != nil {
		e.Fatal(err)
	}
	return left.TTL > 0
}
