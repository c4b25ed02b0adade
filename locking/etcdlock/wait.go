package etcdlock

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

// enter puts waiters into the queues, and returns nil when they are first in all of
// them. Without wait it enters only queues that are all empty. With wait it tries that too,
// unless another process was in one of the queues the last time: usually none was, and a
// transaction that reads no queue is faster.
func (a *attempt) enter(ctx context.Context, wait bool) error {
	s := a.session.store
	if !wait || !s.hadRivals(a.keys) {
		_, err := a.put(ctx, false, wait)
		busy := errors.Is(err, locking.ErrBusy) && !errors.Is(err, locking.ErrOutcomeUnknown) // ctx may end with this cause
		if a.alone = err == nil; !wait || !busy {
			return err
		}
	}
	answer, err := a.put(ctx, true, false)
	if err != nil {
		return err
	}
	a.alone = predecessor(answer) == ""
	s.setRivals(a.keys, !a.alone)
	ctx, cancel := under(ctx, a.session.life, errAgain)
	defer cancel()
	for err == nil {
		before := predecessor(answer)
		if before == "" {
			return nil
		}
		answer, err = a.await(ctx, before, answer.Header.Revision)
	}
	return err
}

// predecessors reads, in each queue, the last waiter created at revision most or before; 0: the last.
func (a *attempt) predecessors(most int64) (reads []clientv3.Op) {
	last := append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(most), clientv3.WithKeysOnly())
	for _, k := range a.keys {
		reads = append(reads, clientv3.OpGet(a.session.store.queueOf(k), last...))
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

// await watches one predecessor, which existed at the revision of the read, until it
// is deleted, and returns a new read of the queues.
//
// The watch starts at the present revision and reports it. If that is not the read's,
// the queues are read once more during the watch, so that no event is missed, whatever
// has been compacted. (A watch from the read's revision on would miss none either, but
// etcd serves watches that start in the past only every 100 ms, and in a busy etcd all
// of them do.)
func (a *attempt) await(ctx context.Context, name string, read int64) (*clientv3.TxnResponse, error) {
	s := a.session.store
	watching, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer stop()
	events := s.client.Watch(watching, name, clientv3.WithCreatedNotify(), clientv3.WithFilterPut())
	for {
		select {
		case e, open := <-events:
			switch {
			case len(e.Events) > 0, e.CompactRevision > 0:
				return a.reread(ctx)
			case !open, e.Err() != nil: // no leader, or the client is closed
				if !sleep(ctx, s.ttl/50) {
					return nil, left(ctx)
				}
				return a.reread(ctx)
			case e.Created && e.Header.Revision > read:
				if answer, err := a.reread(ctx); err != nil || predecessor(answer) != name {
					return answer, err
				}
			}
		case <-ctx.Done():
			return nil, left(ctx)
		}
	}
}

// reread reads, in each queue, the waiter directly before this attempt's own, and retries until
// etcd answers. If one of its own waiters is gone, it returns errAgain. A waiter lives as
// long as its session, so it survives a time in which etcd is unavailable.
func (a *attempt) reread(ctx context.Context) (*clientv3.TxnResponse, error) {
	s := a.session.store
	for {
		answer, err := s.txn(ctx, append(a.mine(), s.sameEpoch), a.predecessors(a.fence-1))
		switch {
		case err == nil && !answer.Succeeded:
			return nil, errAgain
		case err == nil, refused(err) && !errors.Is(err, rpctypes.ErrNoLeader):
			return answer, err
		case !sleep(ctx, s.ttl/50):
			return nil, left(ctx)
		}
	}
}
