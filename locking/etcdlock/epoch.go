// SPDX-License-Identifier: MIT

package etcdlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrEpoch reports that etcd has another epoch than the Store: its fences have restarted,
// or are about to. Nothing was acquired. The Store returns it until the process opens a
// new one.
var ErrEpoch = errors.New("etcdlock: this etcd was wiped, restored or given a new epoch of fences: restart this process")

// epoch identifies a period in which all fences of an etcd can be compared: the id of
// the cluster, and a random value stored in it. Both are needed. A wiped etcd that is
// started with the same flags has the same cluster id, and one restored as a new cluster
// has the old value.
type epoch struct {
	cluster uint64
	value   string
}

func (e epoch) String() string { return fmt.Sprintf("etcd-%x-%s", e.cluster, e.value) }

// Epoch names the epoch of the Store's fences: only fences of one epoch can be compared.
// A resource stores it with the fence. When etcd has another epoch, the Store grants
// nothing and returns ErrEpoch.
func (s *Store) Epoch() string { return s.locks.epoch.String() }

// findEpoch reads the epoch, and creates it if there is none. Only New calls it: a
// running Store must not take a wiped etcd for a new one.
func (d *locks) findEpoch(ctx context.Context) (epoch, error) {
	key, value := epochKey(d.prefix), rand.Text()
	none := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	answer, err := d.client.Txn(clientv3.WithRequireLeader(ctx)).If(none).Then(clientv3.OpPut(key, value)).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return epoch{}, d.classify(ctx, err)
	}
	if !answer.Succeeded {
		value = string(answer.Responses[0].GetResponseRange().Kvs[0].Value)
	}
	return epoch{answer.Header.ClusterId, value}, nil
}

// NewEpoch starts a new epoch of fences below prefix (empty: as in Options). An operator
// calls it after etcd was restored, which brings back the old epoch with lower numbers.
// It returns the epoch that was there (empty: none) and the new one. From then on every
// running Store returns ErrEpoch, its Leases are lost when they are renewed, and no
// earlier waiter is granted anything.
func NewEpoch(ctx context.Context, client *clientv3.Client, prefix string) (was, now string, err error) {
	if prefix, err = checkPrefix(prefix); err != nil {
		return "", "", err
	}
	value := rand.Text()
	answer, err := client.Put(ctx, epochKey(prefix), value, clientv3.WithPrevKV())
	if err != nil {
		return "", "", fmt.Errorf("etcdlock: new epoch: %w", err)
	}
	cluster := answer.Header.ClusterId
	if answer.PrevKv != nil {
		was = epoch{cluster, string(answer.PrevKv.Value)}.String()
	}
	return was, epoch{cluster, value}.String(), nil
}

// isEpoch reports whether a read of the value has found the Store's.
func (d *locks) isEpoch(found *pb.RangeResponse) bool {
	return len(found.Kvs) == 1 && string(found.Kvs[0].Value) == d.epoch.value
}
