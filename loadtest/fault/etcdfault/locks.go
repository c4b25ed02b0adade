package etcdfault

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// queue is the part that the waiters for a lock have in common, as etcdlock has it.
func queue(prefix, lock string) string { return fmt.Sprintf("%s/%d:%s/", prefix, len(lock), lock) }

// holders finds who holds the locks below prefix: the lease, by queue.
func holders(ctx context.Context, client *clientv3.Client, prefix string, at ...clientv3.OpOption) (map[string]clientv3.LeaseID, error) {
	at = append(at, clientv3.WithRange(prefix+"/:"), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	found, err := client.Get(ctx, prefix+"/0", at...) // queues go on with a digit; keys alone would come without their leases
	if err != nil {
		return nil, err
	}
	first, waits := map[string]*mvccpb.KeyValue{}, map[int64]bool{}
	for _, kv := range found.Kvs {
		if q := string(kv.Key[:bytes.LastIndexByte(kv.Key, '/')+1]); first[q] == nil {
			first[q] = kv
		} else {
			waits[kv.CreateRevision] = true
		}
	}
	held := map[string]clientv3.LeaseID{}
	for q, kv := range first {
		if !waits[kv.CreateRevision] {
			held[q] = clientv3.LeaseID(kv.Lease)
		}
	}
	return held, nil
}

// Leftovers are the names of locks, held or waited for, that are in etcd below
// prefix. The source of fences is none, which is there for ever, nor is the gate
// of a session, which is there as long as its replica.
func Leftovers(ctx context.Context, client *clientv3.Client, prefix string) (left []string, err error) {
	found, err := client.Get(ctx, prefix+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	for _, kv := range found.Kvs {
		name := string(kv.Key)
		if name != prefix+"/source" && !strings.HasPrefix(name, prefix+"/session:") {
			left = append(left, name)
		}
	}
	return left, nil
}

// LeftAfter waits until no lock is left, at most for a while, and returns those that
// are left then. The lock of a dead process is gone after the TTL and half a second,
// and after as long again if a leader died with it.
func LeftAfter(ctx context.Context, client *clientv3.Client, prefix string, wait time.Duration) ([]string, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		left, err := Leftovers(ctx, client, prefix)
		if err != nil || len(left) == 0 || !pause(waiting, lookEvery) {
			return left, cmp.Or(err, ctx.Err())
		}
	}
}
