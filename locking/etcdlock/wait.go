package etcdlock

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// enterAndWait puts waiters into the queues, and returns when none is before them.
func (a *attempt) enterAndWait(ctx context.Context) error {
	answer, err := a.enter(ctx, nil, a.predecessors(0))
	if err == nil && !answer.Succeeded {
		err = errAgain
	}
	for err == nil {
		before := predecessor(answer)
		if before == "" {
			return nil
		}
		answer, err = a.await(ctx, before, answer.Header.Revision)
	}
	return err
}

// predecessors read, in each queue, the last that came at revision most or before; 0: the last.
func (a *attempt) predecessors(most int64) (reads []clientv3.Op) {
	for _, q := range a.queues {
		reads = append(reads, clientv3.OpGet(q, append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(most), clientv3.WithKeysOnly())...))
	}
	return reads
}

// predecessor is the first name that a read of the queues has found.
func predecessor(answer *clientv3.TxnResponse) string {
	for _, r := range answer.Responses {
		if found := r.GetResponseRange().GetKvs(); len(found) > 0 {
			return string(found[0].Key)
		}
	}
	return ""
}

// await watches one predecessor, which was there at the revision of the read, until
// it is gone, and returns what the queues look like then.
//
// The watch begins at the present revision and says which that is. If it is the
// read's, nothing has happened in between; if not, the queues are read once
// more, beside the watch: no gap, whatever has been compacted. (To watch from the
// read's revision on would be no gap either, but etcd looks after watches that
// begin in the past every 100 ms only, and in a busy etcd all of them do.) When
// the connection breaks, the client goes on from the revision that it has seen; if that
// is compacted by then, the watch ends, and the queues are read.
func (a *attempt) await(ctx context.Context, name string, read int64) (*clientv3.TxnResponse, error) {
	watching, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer stop()
	events := a.session.store.client.Watch(watching, name, clientv3.WithCreatedNotify(), clientv3.WithFilterPut())
	for {
		select {
		case e, open := <-events:
			switch {
			case len(e.Events) > 0, e.CompactRevision > 0:
				return a.lookAgain(ctx)
			case !open, e.Err() != nil: // no leader, or the client is closed
				if err := a.pause(ctx); err != nil {
					return nil, err
				}
				return a.lookAgain(ctx)
			case e.Created && e.Header.Revision > read:
				if answer, err := a.lookAgain(ctx); err != nil || predecessor(answer) != name {
					return answer, err
				}
			}
		case <-a.session.done:
			return nil, errAgain
		case <-ctx.Done():
			return nil, ended(ctx)
		}
	}
}

// lookAgain looks until etcd answers. A waiter is safe as long as its session:
// that etcd is away for a while costs it nothing.
func (a *attempt) lookAgain(ctx context.Context) (*clientv3.TxnResponse, error) {
	for {
		answer, err := a.look(ctx)
		if err == nil || errors.Is(err, errAgain) || refused(err) && !errors.Is(err, rpctypes.ErrNoLeader) {
			return answer, err
		}
		if err := a.pause(ctx); err != nil {
			return nil, err
		}
	}
}

// look asks, for each queue, which is the last before us, as long as all of our own
// waiters are there, and the epoch; else it returns errAgain.
func (a *attempt) look(ctx context.Context) (*clientv3.TxnResponse, error) {
	s := a.session.store
	limited, cancel := within(ctx, requestTimeout(s.ttl))
	defer cancel()
	answer, err := s.client.Txn(limited).If(append(mine(a.names, a.fence), s.sameEpoch())...).Then(a.predecessors(a.fence - 1)...).Commit()
	if err == nil && !answer.Succeeded {
		return nil, errAgain
	}
	return answer, err
}

// pause waits a little, for etcd to come back.
func (a *attempt) pause(ctx context.Context) error {
	select {
	case <-time.After(a.session.store.ttl / 50):
		return nil
	case <-a.session.done:
		return errAgain
	case <-ctx.Done():
		return ended(ctx)
	}
}
