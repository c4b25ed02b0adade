// SPDX-License-Identifier: MIT

package etcdfault

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"shop/compose/local/stack/stacktest"
	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"
	"shop/locking/etcdlock"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asReplica {
		os.Exit(beReplica(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

func connect(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	config := etcdlock.Config(endpoints...)
	config.Logger = zap.NewNop()
	client, err := clientv3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// shared returns a client of the shared etcd, and a prefix for one test.
func shared(t testing.TB) (*clientv3.Client, string) {
	t.Helper()
	return connect(t, strings.Split(testbed.Env(t, "SHOP_ETCD_ENDPOINTS"), ",")...), fmt.Sprintf("fault-%d", time.Now().UnixNano())
}

func open(t testing.TB, client *clientv3.Client, prefix string, ttl time.Duration) *etcdlock.Store {
	t.Helper()
	store, err := etcdlock.New(t.Context(), client, ttl, etcdlock.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// three starts a cluster for one test.
func three(t *testing.T) (*clientv3.Client, []fault.Member) {
	t.Helper()
	var members []fault.Member
	var endpoints []string
	for _, s := range stacktest.Private(t, "etcd3") {
		members, endpoints = append(members, fault.Member{Addr: s.Addr, Server: s}), append(endpoints, s.Addr)
	}
	return connect(t, endpoints...), members
}
