package etcdlock

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// enterAndWait puts waiters into the queues, and returns when nobody is before
// them. When it returns an error, a.fence tells whether they are still there.
func (a *attempt) enterAndWait(ctx context.Context) error {
	answer, err := a.enter(ctx, nil, a.predecessors(0))
	for err == nil {
		before := predecessor(answer)
		if before == "" {
			return nil
		}
		if err = a.watch(ctx, before, answer.Header.Revision); err == nil {
			answer, err = a.lookAgain(ctx)
		}
	}
	return err
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

// watch returns nil when it is time to look again: name, which was there at the
// given revision, is gone; or the watch has ended, because of a compaction, a
// change of leader, a broken line. It returns an error when ctx or the session
// ends.
func (a *attempt) watch(ctx context.Context, name string, read int64) error {
	x, s := a.session, a.session.store
	watching, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer stop()
	events := s.client.Watch(watching, name, clientv3.WithRev(read+1), clientv3.WithFilterPut())
	for {
		select {
		case e, open := <-events:
			switch {
			case len(e.Events) > 0, e.CompactRevision > 0:
				return nil
			case !open, e.Err() != nil:
				return a.pause(ctx)
			}
		case <-x.done:
			return errAgain
		case <-ctx.Done():
			return ended(ctx)
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

// pause waits a little, for etcd to come back.
func (a *attempt) pause(ctx context.Context) error {
	timer := time.NewTimer(a.session.store.ttl / 50)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-a.session.done:
		return errAgain
	case <-ctx.Done():
		return ended(ctx)
	}
}
