// Package leaseid is a lock over etcd with a mistake of published examples (etcd's
// contrib/lock): the id of the lease is handed out as the fence. It is here to fail.
//
// As a lock it is right: a key is created if it is not there, under a lease of
// its own, and revoking the lease gives it back. Its Fence breaks the promise
// that a Fence makes, to be greater than every earlier one of the key. Each etcd
// member makes the ids of the leases that are asked of it, from its own member
// id, its own clock and a counter: unique, and of two members one always has the
// greater ones. With one member they happen to be in order, so that every test
// on a laptop passes. With three, and a client connected to each, a guard that
// compares them refuses rightful holders for ever, and lets stale ones through.
//
// The right number stands in the same answer: the revision at which the key was
// created (etcdlock).
package leaseid

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

// Store is a locking.Store. It is safe for concurrent use.
type Store struct {
	client *clientv3.Client
	prefix string
	ttl    time.Duration
}

var _ locking.Store = (*Store)(nil)

// New makes a Store whose keys begin with prefix. The ttl is in whole seconds,
// as etcd's are.
func New(client *clientv3.Client, prefix string, ttl time.Duration) (*Store, error) {
	if ttl < time.Second || ttl%time.Second != 0 {
		return nil, fmt.Errorf("leaseid: TTL %v, want whole seconds", ttl)
	}
	return &Store{client: client, prefix: prefix, ttl: ttl}, nil
}

// TryAcquire creates all keys or none, under a lease of their own.
func (s *Store) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	sorted, err := locking.SortedKeys(keys)
	if err != nil {
		return locking.Lease{}, err
	}
	sent := time.Now()
	lease, err := s.client.Grant(ctx, int64(s.ttl/time.Second))
	if err != nil {
		return locking.Lease{}, fmt.Errorf("leaseid: grant: %w", err)
	}
	var (
		free []clientv3.Cmp
		take []clientv3.Op
	)
	for _, key := range sorted {
		free = append(free, clientv3.Compare(clientv3.CreateRevision(s.prefix+key), "=", 0))
		take = append(take, clientv3.OpPut(s.prefix+key, "", clientv3.WithLease(lease.ID)))
	}
	done, err := s.client.Txn(ctx).If(free...).Then(take...).Commit()
	if err == nil && done.Succeeded {
		return locking.Lease{
			Keys:  sorted,
			Owner: strconv.FormatInt(int64(lease.ID), 16),
			Fence: locking.Fence(lease.ID), // the mistake
			Until: sent.Add(s.ttl - s.ttl/10),
		}, nil
	}
	if err == nil {
		err = locking.ErrBusy
	}
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = s.client.Revoke(detached, lease.ID)
	return locking.Lease{}, err
}

// Renew keeps the lease alive.
func (s *Store) Renew(ctx context.Context, l locking.Lease) (locking.Lease, error) {
	sent := time.Now()
	if _, err := s.client.KeepAliveOnce(ctx, clientv3.LeaseID(l.Fence)); err != nil {
		return l, lostIfGone(err)
	}
	l.Until = sent.Add(s.ttl - s.ttl/10)
	return l, nil
}

// Release revokes the lease, and the keys go with it.
func (s *Store) Release(ctx context.Context, l locking.Lease) error {
	_, err := s.client.Revoke(ctx, clientv3.LeaseID(l.Fence))
	return lostIfGone(err)
}

func lostIfGone(err error) error {
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("%w: %w", locking.ErrLost, err)
	}
	return err
}
