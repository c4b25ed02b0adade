// SPDX-License-Identifier: MIT

package etcdfault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/loadtest/fault"
	"shop/locking/held"
)

// LeasesRevoked revokes all leases that have keys below Prefix/, as an operator who
// believes that the holders hang does with `etcdctl lease revoke`. The holders learn of it
// when they renew, up to a third of the TTL later; the next holders get their locks at once.
type LeasesRevoked struct {
	Client *clientv3.Client
	Prefix string        // of the replicas' locks
	Every  time.Duration // a fraction of the TTL
}

// Inject counts the leases that existed and were revoked.
func (l LeasesRevoked) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	return fault.Repeat(ctx, over, l.Every, "leases revoked", "leases_revoked", l.revokeAll)
}

func (l LeasesRevoked) revokeAll(ctx context.Context) (hits int64, err error) {
	keys, err := l.Client.Get(ctx, l.Prefix+"/", clientv3.WithPrefix()) // WithKeysOnly would leave out the leases
	if err != nil {
		return 0, err
	}
	for _, id := range leasesOf(keys.Kvs) {
		revoked, err := revoke(ctx, l.Client, id)
		if err != nil {
			return hits, err
		}
		if revoked {
			hits++
		}
	}
	return hits, nil
}

// leasesOf returns the distinct leases of keys. A key without a lease has lease 0.
func leasesOf(keys []*mvccpb.KeyValue) (ids []clientv3.LeaseID) {
	for _, kv := range keys {
		if id := clientv3.LeaseID(kv.Lease); id != 0 && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// revoke returns false if the lease has ended already.
func revoke(ctx context.Context, client *clientv3.Client, id clientv3.LeaseID) (bool, error) {
	_, err := client.Revoke(ctx, id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Evict revokes the lease of the holder of a lock in the etcdlock stores with
// this prefix: the oldest entry in the key's queue. Everything attached to the lease
// is deleted with it: all keys of that grant. Evict returns false if the lock has no holder.
func Evict(ctx context.Context, client *clientv3.Client, prefix, key string) (bool, error) {
	return held.Etcd{Client: client, Prefix: prefix}.End(ctx, key)
}

// Leftovers lists what remains of the locks below prefix: their keys, and every other
// key with a lease. Keys that a store keeps permanently, without a lease, do not count.
func Leftovers(ctx context.Context, client *clientv3.Client, prefix string) (left []string, err error) {
	keys, err := client.Get(ctx, prefix+"/", clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("leftovers: %w", err)
	}
	for _, kv := range keys.Kvs {
		switch name := string(kv.Key); {
		case kv.Lease != 0:
			left = append(left, fmt.Sprintf("%s under lease %x", name, kv.Lease))
		case isQueue(name[len(prefix):]):
			left = append(left, name+" without a lease: it would never expire")
		}
	}
	return left, nil
}

// isQueue reports whether name is a lock of etcdlock, /LENGTH:KEY/OWNER, by its first digit.
func isQueue(name string) bool {
	return len(name) > 1 && name[0] == '/' && name[1] >= '0' && name[1] <= '9'
}
