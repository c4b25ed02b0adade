package etcdfault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/loadtest/fault"
)

// LeasesRevoked revokes all leases that have keys below Prefix/, as an operator does
// with `etcdctl lease revoke` who takes the holders for hung. The holders find out when
// they renew, up to a third of the TTL later; the next ones come in at once.
type LeasesRevoked struct {
	Client *clientv3.Client
	Prefix string        // that the replicas were given
	Every  time.Duration // several times per TTL; longer than a session takes to be made anew
}

// Inject counts the leases that were there to be revoked.
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

// leasesOf names each once. A key without a lease has 0.
func leasesOf(keys []*mvccpb.KeyValue) (ids []clientv3.LeaseID) {
	for _, kv := range keys {
		if id := clientv3.LeaseID(kv.Lease); id != 0 && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// revoke is false for one that has ended already.
func revoke(ctx context.Context, client *clientv3.Client, id clientv3.LeaseID) (bool, error) {
	_, err := client.Revoke(ctx, id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Evict revokes the lease of the holder of the lock of key in the etcdlock
// stores with this prefix: the oldest in its queue. All that hangs on the lease
// is gone with it: in etcdlock that is every lock of the holder's process. It
// returns false if it has no holder.
func Evict(ctx context.Context, client *clientv3.Client, prefix, key string) (bool, error) {
	first, err := client.Get(ctx, prefix+"/"+strconv.Itoa(len(key))+":"+key+"/", clientv3.WithFirstCreate()...)
	if err != nil || len(first.Kvs) == 0 {
		return false, err
	}
	return revoke(ctx, client, clientv3.LeaseID(first.Kvs[0].Lease))
}

// Leftovers lists what is still there of the locks below prefix: their keys, and
// every other key that hangs on a lease. What a store keeps for good, under no
// lease, is none.
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
			left = append(left, name+" under no lease: it would stay for ever")
		}
	}
	return left, nil
}

// isQueue knows a lock of etcdlock by its first sign: /LENGTH:KEY/OWNER.
func isQueue(name string) bool {
	return len(name) > 1 && name[0] == '/' && name[1] >= '0' && name[1] <= '9'
}
