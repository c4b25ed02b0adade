package etcdlock

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

// pass is the release of a key for which a request of this process waits, and no other process does: the name is put again
// for that request, at a new revision, which is the next fence. So a grant within a process is one request to etcd. 0: the
// key was not passed on, and must be deleted.
//
// It is not tried if another process had a waiter when this attempt entered the queue: that process most often has one again.
func (g *grant) pass(ctx context.Context) (fence int64, err error) {
	s, key := g.session.store, g.keys[0]
	if !g.alone || len(s.queue.At(key, 1)) != 1 {
		return 0, nil
	}
	alone := clientv3.Compare(clientv3.CreateRevision(s.queueOf(key)), "<", g.created+1).WithPrefix()
	again := clientv3.OpPut(g.name(key), "", clientv3.WithLease(g.session.id))
	answer, err := s.txn(ctx, append(g.mine(), alone, s.sameEpoch), []clientv3.Op{again})
	switch {
	case err != nil && (refused(err) || errors.Is(err, rpctypes.ErrNoSpace)): // a delete needs no space
		return 0, nil
	case err != nil:
		return 0, err
	case !answer.Succeeded, answer.Header.ClusterId != s.epoch.cluster: // restored as a new cluster: another epoch
		return 0, nil
	}
	return answer.Header.Revision, nil
}

// bequeath ends a grant whose key was passed on, so that the next ticket has its turn. The caller holds the mutex.
func (s *Store) bequeath(g *grant, fence int64) {
	key := g.keys[0]
	s.passed[key] = &attempt{session: g.session, keys: g.keys, nonce: g.nonce, alone: true, created: g.created, fence: fence}
	s.drop(g)
	s.settled(key)
}

// inherit makes a Lease of what a release has passed to t, the first ticket for one key. False: nothing, or the session is dead.
func (s *Store) inherit(t *locking.Ticket[string], keys []string) (locking.Lease, bool) {
	s.mu.Lock()
	a := s.passed[keys[0]]
	if a == nil || len(keys) > 1 {
		s.mu.Unlock()
		return locking.Lease{}, false
	}
	delete(s.passed, keys[0])
	s.mu.Unlock()
	a.ticket = t
	lease, held := a.grant()
	if !held {
		s.mu.Lock()
		defer s.mu.Unlock()
		a.discard()
	}
	return lease, held
}

// settle removes what releases have passed to requests that have left.
func (s *Store) settle(keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		s.settled(key)
	}
}

// settled is settle for one key. The caller holds the mutex.
func (s *Store) settled(key string) {
	if a := s.passed[key]; a != nil && len(s.queue.At(key, 0)) != 1 {
		delete(s.passed, key)
		a.discard()
	}
}

// discard removes what was passed. A dead session, which has names as long as it has Leases, would keep it. The
// caller holds the mutex.
func (a *attempt) discard() {
	x, s := a.session, a.session.store
	switch {
	case x.life.Err() == nil:
		a.remove(false)
	case s.life.Err() == nil:
		s.work.Go(func() {
			_ = persist(s.life, s.ttl, s.ttl/12, func(ctx context.Context) error {
				_, err := s.client.Delete(ctx, a.name(a.keys[0]))
				return err
			})
		})
	}
}
