// SPDX-License-Identifier: MIT

package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
	"shop/locking/driver"
)

// waiter is one request for keys, under names that no other request has.
type waiter struct {
	*locks
	lease *lease
	keys  []string
	fence int64 // the revision of its names; 0: it has none
	none  bool  // after an error: it has left nothing in etcd, and can no longer do so
}

// errPlace is the error of a waiter whose place is gone: its lease has ended, or an operator has deleted it, or the epoch is over.
var errPlace = errors.New("the place in the queue is gone")

// enter puts the waiter into its queues, and returns when it is the first in all of them. Without wait it
// enters only queues that are empty, and otherwise changes nothing.
func (w *waiter) enter(ctx context.Context, wait bool) error {
	conditions := []clientv3.Cmp{w.sameEpoch}
	var ops []clientv3.Op
	if wait {
		ops = w.predecessors(0)
	}
	for _, k := range w.keys {
		if !wait {
			conditions = append(conditions, absent(w.queueOf(k)))
		}
		ops = append(ops, clientv3.OpPut(w.name(k, w.lease.id), "", clientv3.WithLease(w.lease.id)))
	}
	limited, cancel := w.within(ctx)
	defer cancel()
	answer, err := w.client.Txn(limited).If(conditions...).Then(ops...).Else(clientv3.OpGet(epochKey(w.prefix))).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound): // it has ended before its time
		w.none = true
		w.trust(time.Time{})
		return driver.Again(err)
	case errors.Is(err, rpctypes.ErrNoSpace): // see ErrNoSpace: the names may be there
		return w.leave(ctx, fmt.Errorf("%w: %w", ErrNoSpace, err))
	case err != nil:
		w.none = refused(err)
		return w.classify(limited, err)
	case answer.Header.ClusterId != w.epoch.cluster: // restored as a new cluster, perhaps with the epoch's value
		return w.leave(ctx, ErrEpoch)
	case !answer.Succeeded:
		w.none = true
		if wait || !w.isEpoch(answer.Responses[0].GetResponseRange()) {
			return driver.Refused(ErrEpoch)
		}
		return locking.ErrBusy
	}
	w.fence = answer.Header.Revision
	if !wait {
		return nil
	}
	return w.await(ctx, answer)
}

// leave revokes the lease with all that the waiter may have in etcd, and returns why as a refusal.
func (w *waiter) leave(ctx context.Context, why error) error {
	if err := w.revoke(ctx, w.lease.id); err != nil {
		return fmt.Errorf("%w, and what it may have done could not be undone: %v", why, err)
	}
	w.none = true
	w.trust(time.Time{})
	return driver.Refused(why)
}

// predecessors reads, in each queue, the last waiter created at revision most or before; 0: the last.
func (w *waiter) predecessors(most int64) (reads []clientv3.Op) {
	last := append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(most), clientv3.WithKeysOnly())
	for _, k := range w.keys {
		reads = append(reads, clientv3.OpGet(w.queueOf(k), last...))
	}
	return reads
}

// predecessor returns the first name that a read of the queues has found.
func predecessor(answer *clientv3.TxnResponse) string {
	for _, r := range answer.Responses {
		if found := r.GetResponseRange().GetKvs(); len(found) > 0 {
			return string(found[0].Key)
		}
	}
	return ""
}

// await waits until the waiter is the first in all queues, and keeps its lease alive. It outlives a time in which etcd is
// unavailable, as long as its lease does.
func (w *waiter) await(ctx context.Context, answer *clientv3.TxnResponse) (err error) {
	for before := predecessor(answer); before != ""; before = predecessor(answer) {
		w.watch(ctx, before, answer.Header.Revision)
		for answer = nil; answer == nil; {
			switch {
			case w.client.Ctx().Err() != nil:
				return errClosed
			case ctx.Err() != nil:
				return locking.ErrBusy
			}
			if err = w.prolong(ctx); err == nil {
				answer, err = w.read(ctx)
			}
			switch {
			case err == nil:
			case errors.Is(err, errPlace), time.Now().After(w.lease.until):
				return err
			case refused(err) && !passes(err):
				return w.leave(ctx, err)
			default:
				answer = nil
				driver.Pause(ctx, w.ttl/50)
			}
		}
	}
	return nil
}

// watch waits until one predecessor, which existed at the revision of the read, is deleted, for at most a third of the TTL.
//
// The watch starts at the present revision and reports it. If that is not the read's,
// the queues are read once more during the watch, so that no event is missed, whatever
// has been compacted. (A watch from the read's revision on would miss none either, but
// etcd serves watches that start in the past only every 100 ms, and in a busy etcd all
// of them do.)
func (w *waiter) watch(ctx context.Context, name string, read int64) {
	ctx, stop := context.WithTimeout(clientv3.WithRequireLeader(ctx), w.ttl/3)
	defer stop()
	events := w.client.Watch(ctx, name, clientv3.WithCreatedNotify(), clientv3.WithFilterPut())
	for {
		select {
		case e, open := <-events:
			switch {
			case !open || e.Err() != nil && e.CompactRevision == 0: // no leader, or the client is closed
				driver.Pause(ctx, w.ttl/50)
				return
			case len(e.Events) > 0, e.CompactRevision > 0:
				return
			case e.Created && e.Header.Revision > read:
				if answer, err := w.read(ctx); err != nil || predecessor(answer) != name {
					return // await reads again
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// read reads, in each queue, the waiter directly before this one. errPlace: one of its own names is gone.
func (w *waiter) read(ctx context.Context) (*clientv3.TxnResponse, error) {
	conditions := []clientv3.Cmp{w.sameEpoch}
	for _, k := range w.keys {
		conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(w.name(k, w.lease.id)), "=", w.fence))
	}
	limited, cancel := w.within(ctx)
	defer cancel()
	answer, err := w.client.Txn(limited).If(conditions...).Then(w.predecessors(w.fence - 1)...).Commit()
	if err == nil && !answer.Succeeded {
		return nil, driver.Anew(errPlace)
	}
	return answer, err
}

// prolong begins the TTL of the lease again, if a third of it is over.
func (w *waiter) prolong(ctx context.Context) error {
	sent := time.Now()
	whole := w.ttl - driver.DefaultMargin(w.ttl)
	if w.lease.until.Sub(sent) > whole-w.ttl/3 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, limit(w.ttl))
	defer cancel()
	_, err := w.client.KeepAliveOnce(limited, w.lease.id)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return driver.Anew(errPlace)
	case err == nil:
		w.trust(sent.Add(whole))
	}
	return err
}

// trust sets until when the lease is trusted. Only the waiter itself changes it.
func (w *waiter) trust(until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lease.until = until
}
