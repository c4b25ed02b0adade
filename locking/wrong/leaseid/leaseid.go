// SPDX-License-Identifier: MIT

// Package leaseid is a lock over etcd with a mistake of published examples (etcd's
// contrib/lock): it uses the id of the lease as the fence. It exists to fail its tests.
//
// As a lock it is correct: it creates a key if the key does not exist, under a lease
// of its own, and frees the key by revoking the lease. But a Fence must be greater
// than every earlier one of the key, and a lease id need not be. Each etcd member
// makes the ids of the leases that it grants from its own member id, its own clock
// and a counter. The ids are unique, but of any two members one always makes the
// greater ids. With a single member they happen to be in order, so that every test on
// a laptop passes. With three members, and a client connected to each, a guard that
// compares ids refuses rightful holders for ever, and lets stale ones through.
//
// The right number is in the same answer: the revision at which the key was created
// (see etcdlock).
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

// New makes a Store whose keys begin with prefix. The ttl must be whole seconds,
// as in etcd.
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
			Fence: locking.Fence(lease.ID), // the mistake: ids are not in order of grants
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

// Release revokes the lease, which deletes its keys.
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
