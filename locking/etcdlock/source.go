package etcdlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrSource tells that fences come from another source than the Store's: their
// numbers have begun again, or are about to. Nothing was acquired. It stays so
// until the process opens a new Store.
var ErrSource = errors.New("etcdlock: this etcd was wiped, restored or given a new source of fences: restart this process")

// source is who hands out the fences of a Store: a cluster, and the random value
// that it keeps. Both are needed. A wiped etcd that is started with the same flags
// has its cluster's id again, and one restored as a new cluster has the old value.
type source struct {
	cluster uint64
	value   string
}

func (o source) String() string { return fmt.Sprintf("etcd-%x-%s", o.cluster, o.value) }

// Source names who hands out the Store's fences: only those of one source can be
// compared. It is what a resource keeps beside a fence. The Store grants nothing
// from another one: ErrSource.
func (s *Store) Source() string { return s.source.String() }

// sourceKey is the name of the value. No length begins with a letter.
func sourceKey(prefix string) string { return prefix + "/source" }

// findSource reads the source, and makes it if there is none. Only New does: a Store
// that runs may not take a wiped etcd for a new one.
func (s *Store) findSource(ctx context.Context) (source, error) {
	ctx, cancel := within(ctx, patience(s.ttl))
	defer cancel()
	key, value := sourceKey(s.prefix), rand.Text()
	answer, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, value)).
		Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return source{}, err
	}
	if !answer.Succeeded {
		value = string(answer.Responses[0].GetResponseRange().Kvs[0].Value)
	}
	return source{answer.Header.ClusterId, value}, nil
}

// NewSource starts a new source of fences below prefix (empty: as in Options), for
// an operator whose etcd was restored: that has the old source, and older numbers.
// It also says which one was there; empty: none. Every running Store answers
// ErrSource from then on, its Leases are lost when they are renewed, and no
// earlier waiter is granted anything.
func NewSource(ctx context.Context, client *clientv3.Client, prefix string) (was, now string, err error) {
	if prefix, err = checkPrefix(prefix); err != nil {
		return "", "", err
	}
	value := rand.Text()
	answer, err := client.Put(ctx, sourceKey(prefix), value, clientv3.WithPrevKV())
	if err != nil {
		return "", "", fmt.Errorf("etcdlock: new source: %w", plain(ctx, err))
	}
	cluster := answer.Header.ClusterId
	if answer.PrevKv != nil {
		was = source{cluster, string(answer.PrevKv.Value)}.String()
	}
	return was, source{cluster, value}.String(), nil
}

// sameSource compares: etcd still has the Store's value. It costs no request.
func (s *Store) sameSource() clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(sourceKey(s.prefix)), "=", s.source.value)
}

// isSource tells whether a read of the value has found the Store's.
func (s *Store) isSource(found *pb.RangeResponse) bool {
	return len(found.Kvs) == 1 && string(found.Kvs[0].Value) == s.source.value
}
