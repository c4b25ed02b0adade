// SPDX-License-Identifier: MIT

package held

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

// Etcd has the locks of etcdlock with this Prefix.
type Etcd struct {
	Client *clientv3.Client
	Prefix string
}

// place is a name in a queue: PREFIX/LENGTH:KEY/LEASE.
type place struct {
	key   string
	lease clientv3.LeaseID
	fence int64
}

// places returns the places of all queues, or of one whose name begins so, those of a queue in the order of arrival.
func (s Etcd) places(ctx context.Context, queue string) (all []place, err error) {
	begin := s.Prefix + "/"
	answer, err := s.Client.Get(ctx, begin+queue, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return nil, err
	}
	for _, kv := range answer.Kvs {
		length, rest, isQueue := strings.Cut(strings.TrimPrefix(string(kv.Key), begin), ":")
		n, err := strconv.Atoi(length)
		if !isQueue || err != nil || len(rest) < n+1 {
			continue // a name of another kind
		}
		all = append(all, place{rest[:n], clientv3.LeaseID(kv.Lease), kv.CreateRevision})
	}
	return all, nil
}

// List returns the locks in the order of their keys. Owner is the lease, as etcdctl writes it.
func (s Etcd) List(ctx context.Context) (locks []Lock, err error) {
	places, err := s.places(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("held: list the locks in etcd: %w", err)
	}
	at := map[string]int{}
	for _, p := range places {
		if n, waits := at[p.key]; waits {
			locks[n].Waiters++
			continue
		}
		lease, err := s.Client.TimeToLive(ctx, p.lease)
		if err != nil {
			return nil, fmt.Errorf("held: list the locks in etcd: %w", err)
		}
		if p.lease != 0 && lease.TTL <= 0 { // it has ended meanwhile
			continue
		}
		at[p.key] = len(locks)
		locks = append(locks, Lock{p.key, strconv.FormatInt(int64(p.lease), 16), locking.Fence(p.fence), time.Duration(lease.TTL) * time.Second, 0})
	}
	return ordered(locks), nil
}

// End revokes the lease of the holder, with all its keys.
func (s Etcd) End(ctx context.Context, key string) (ended bool, err error) {
	places, err := s.places(ctx, strconv.Itoa(len(key))+":"+key+"/")
	if err == nil && len(places) > 0 {
		_, err = s.Client.Revoke(ctx, places[0].lease)
		ended = err == nil
	}
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) { // that one has ended meanwhile
		return false, fmt.Errorf("held: end %q in etcd: %w", key, err)
	}
	return ended, nil
}
