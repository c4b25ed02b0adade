// SPDX-License-Identifier: MIT

package leaseid

import (
	"context"
	"crypto/rand"
	"math/big"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"shop/locking"
	"shop/locking/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// member grants leases with chosen ids, as a member of a cluster does: its ids are unique,
// and have no order with those of the others.
type member struct {
	pb.LeaseClient
	id int64
}

func (m member) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest, opts ...grpc.CallOption) (*pb.LeaseGrantResponse, error) {
	r.ID = m.id
	return m.LeaseClient.LeaseGrant(ctx, r, opts...)
}

// newStore makes a Store whose next lease has this id.
func newStore(t *testing.T, prefix string, id int64) *Store {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: strings.Split(servertest.Env(t, "SHOP_ETCD_ENDPOINTS"), ","), DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	client.Lease = clientv3.NewLeaseFromLeaseClient(member{pb.NewLeaseClient(client.ActiveConnection()), id}, client, time.Second)
	store, err := New(client, prefix, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// resource is what the lock protects, with the guard of etcd's example.
type resource struct{ newest locking.Fence }

// write reports whether the guard lets a write with this fence pass.
func (r *resource) write(fence locking.Fence) bool {
	if fence < r.newest {
		return false
	}
	r.newest = fence
	return true
}

// A's lease is granted by a member with greater ids than the one that grants B's. So the
// guard refuses B, which holds the key, for ever, and lets A pass, which has released it.
func TestFence_OfTwoMembersRefusesTheHolderAndLetsTheStaleOnePass(t *testing.T) {
	t.Parallel()
	random, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		t.Fatal(err)
	}
	prefix, id := "test-"+rand.Text()+"/", random.Int64()+2
	a, b := newStore(t, prefix, id), newStore(t, prefix, id-1)
	account := &resource{}

	first, revision := take(t, a)
	if !account.write(first.Fence) {
		t.Fatal("A was refused, while it held the key")
	}
	if err := a.Release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	second, later := take(t, b)
	if account.write(second.Fence) {
		t.Error("B passed")
	}
	if !account.write(first.Fence) {
		t.Error("A was refused, after it had released the key")
	}
	if later <= revision {
		t.Errorf("the key was created at revision %d, and before at %d: that is no fence either", later, revision)
	}
	if err := b.Release(t.Context(), second); err != nil {
		t.Error(err)
	}
}

// take takes the key, and returns the revision at which it was created: the correct fence.
func take(t *testing.T, s *Store) (lease locking.Lease, created int64) {
	t.Helper()
	lease, err := s.TryAcquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.client.Get(t.Context(), s.prefix+"k")
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("%+v, %v, want one key", got, err)
	}
	return lease, got.Kvs[0].CreateRevision
}
