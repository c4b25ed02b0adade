package etcdlock

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// undo removes what an attempt that has failed may have left. nil: it has left nothing.
func (a *attempt) undo(err error) (undone <-chan bool) {
	s := a.session.store
	s.mu.Lock()
	defer s.mu.Unlock()
	mayArrive := a.fence == 0 && silent(err)
	if mayArrive || a.fence > 0 || errors.Is(err, ErrNoSpace) {
		return a.remove(mayArrive)
	}
	return nil
}

// remove deletes, in the background, names for which no caller waits: of waiters whose
// callers left, Leases that expired, releases and attempts without an answer. If the
// attempt's request may still arrive, the same transaction puts the fencing key, so that
// the request then does nothing. The caller holds the mutex.
//
// removed receives true when etcd has confirmed the removal. After a third of the TTL
// without a confirmation the session is abandoned: other requests may be waiting behind
// these names.
func (a *attempt) remove(mayArrive bool) (removed <-chan bool) {
	x, s, result := a.session, a.session.store, make(chan bool, 1)
	if x.life.Err() != nil { // its lease is revoked soon, or expires
		result <- false
		return result
	}
	ops := a.deletes()
	if mayArrive {
		ops = append(ops, clientv3.OpPut(s.fencingKey(a.nonce), "", clientv3.WithLease(x.id)))
	}
	s.work.Go(func() {
		err := persist(x.life, s.ttl/3, s.ttl/12, func(ctx context.Context) error {
			_, err := s.client.Txn(ctx).Then(ops...).Commit()
			return err
		})
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			x.die(errRevoked)
		case err != nil:
			x.die(errOrphans)
		}
		result <- err == nil
	})
	return result
}

// persist calls send until etcd answers, for at most d, and until life ends. Each call is
// bounded by the duration each, and the end of life does not interrupt it: Close waits.
func persist(life context.Context, d, each time.Duration, send func(context.Context) error) error {
	for end := time.Now().Add(d); ; {
		ctx, cancel := within(context.WithoutCancel(life), each)
		err := send(ctx)
		cancel()
		if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) || time.Now().After(end) || !sleep(life, each/8) {
			return err
		}
	}
}
