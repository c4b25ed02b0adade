// SPDX-License-Identifier: MIT

package etcdlock

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"shop/locking"
	"shop/locking/locktest/faulty"
)

// The stores in this file are wrong on purpose: the contract has to refuse them.

var anyStore = faulty.Any[*Store]

// changes makes a mutant that changes each granted lease.
func changes(f func(*Store, *locking.Lease)) func(*Store) locking.Store {
	return func(s *Store) locking.Store {
		return faulty.Twisted{Store: s, Try: func(ctx context.Context, keys []string) (locking.Lease, error) {
			l, err := s.TryAcquire(ctx, keys...)
			if err == nil {
				f(s, &l)
			}
			return l, err
		}}
	}
}

// sharedSession uses etcd's own mutex, with one session for all goroutines: T4.
func sharedSession(s *Store) locking.Store {
	session, err := concurrency.NewSession(s.locks.client, concurrency.WithTTL(10))
	if err != nil {
		panic(err)
	}
	lock := func(ctx context.Context, keys []string) (locking.Lease, error) {
		if _, err := locking.SortedKeys(keys); err != nil {
			return locking.Lease{}, err
		}
		m := concurrency.NewMutex(session, s.locks.queueOf(keys[0])+"mutex")
		if err := m.TryLock(ctx); errors.Is(err, concurrency.ErrLocked) {
			return locking.Lease{}, locking.ErrBusy
		} else if err != nil {
			return locking.Lease{}, err
		}
		return locking.Lease{Keys: keys, Owner: m.Key(), Fence: locking.Fence(m.Header().Revision), Until: time.Now().Add(5 * time.Second)}, nil
	}
	return faulty.Twisted{
		Store: s, Try: lock,
		Free: func(ctx context.Context, l locking.Lease) error {
			_, err := s.locks.client.Delete(ctx, l.Owner)
			return err
		},
	}
}

// releasesTheQueue frees the key whichever Lease holds it.
func releasesTheQueue(s *Store) locking.Store {
	return faulty.Twisted{Store: s, Free: func(ctx context.Context, l locking.Lease) error {
		for _, k := range l.Keys {
			if _, err := s.locks.client.Delete(ctx, s.locks.queueOf(k), clientv3.WithPrefix()); err != nil {
				return err
			}
		}
		_ = s.Release(ctx, l)
		return nil
	}}
}

// leaseIDs returns the ID of the lease in etcd as the fence, as etcd's own example does.
func leaseIDs(s *Store) locking.Store {
	ids := changes(func(_ *Store, l *locking.Lease) {
		id, _, _ := marked(l.Owner)
		l.Fence = locking.Fence(id)
	})(s)
	return faulty.Twisted{Store: ids, Free: func(ctx context.Context, l locking.Lease) error {
		_, fence, _ := marked(l.Owner)
		l.Fence = locking.Fence(fence)
		return s.Release(ctx, l)
	}}
}
