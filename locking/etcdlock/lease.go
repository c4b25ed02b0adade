package etcdlock

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

// grant is an attempt that is first in its queues, and its Lease. It is in Store.grants
// until the Store learns that the Lease is over.
type grant struct {
	*attempt
	lease locking.Lease // Until: guarded by the Store's mutex
	timer *time.Timer   // deletes the keys at Until

	claimed atomic.Bool // by a Release
}

// grant makes a Lease of an attempt that is first in its queues. Its Until is that of
// the session's last keep-alive. False: the session is dead.
func (a *attempt) grant() (locking.Lease, bool) {
	x, s := a.session, a.session.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if !time.Now().Before(x.until) {
		x.kill(errExpired)
	}
	if x.life.Err() != nil {
		return locking.Lease{}, false
	}
	g := &grant{attempt: a, lease: locking.Lease{
		Keys:  a.keys,
		Owner: a.nonce + "-" + strconv.FormatInt(a.fence, 10), // no other grant has this nonce at this revision
		Fence: locking.Fence(a.fence),
		Until: x.until,
	}}
	s.grants[g.lease.Owner] = g
	g.timer = time.AfterFunc(time.Until(x.until), func() { s.expire(g) })
	return g.lease, true
}

// expire is what a grant's timer calls: it ends the grant, or sets the timer again if the grant
// was renewed. The session continues, and would keep the keys for ever.
func (s *Store) expire(g *grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.expired(g) {
		g.timer.Reset(time.Until(g.lease.Until))
	}
}

// expired ends a grant that was not renewed before its Until. Its timer may be late: the
// machine decides when it runs. The caller holds the mutex.
func (s *Store) expired(g *grant) bool {
	if time.Now().Before(g.lease.Until) {
		return false
	}
	s.abandon(g)
	return true
}

// abandon ends a grant whose names may still be in etcd, and removes them. The caller
// holds the mutex.
func (s *Store) abandon(g *grant) {
	if s.drop(g) {
		g.remove(false)
	}
}

// drop ends a grant in this Store: the next ticket of the process gets its turn. False:
// it was over already, and another may use its names. The caller holds the mutex.
func (s *Store) drop(g *grant) bool {
	if s.grants[g.lease.Owner] != g {
		return false
	}
	delete(s.grants, g.lease.Owner)
	g.timer.Stop()
	g.ticket.Leave(g.keys...)
	g.session.retire()
	return true
}

// grantOf finds the grant of l. A Lease without a grant here is over.
func (s *Store) grantOf(l locking.Lease) (*grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.grants[l.Owner]
	switch {
	case s.life.Err() != nil:
		return nil, ErrClosed
	case g == nil || g.lease.Fence != l.Fence || !slices.Equal(g.keys, l.Keys) || s.expired(g):
		return nil, locking.ErrLost
	}
	return g, nil
}

// Renew returns l with a later Until, that of a keep-alive which etcd has answered, and
// checks that l still holds its keys. It returns locking.ErrLost, finally, if it does
// not, or if l was not renewed before its Until.
func (s *Store) Renew(ctx context.Context, l locking.Lease) (_ locking.Lease, err error) {
	defer describe(&err, "renew", l.Keys)
	g, err := s.grantOf(l)
	if err == nil {
		err = g.session.renew(ctx)
	}
	if err != nil {
		return l, err
	}
	// etcd answers a transaction of comparisons alone from the member's own data, which
	// may be old. The read makes it linearizable.
	look := clientv3.OpGet(g.name(g.keys[0]), clientv3.WithCountOnly())
	answer, err := s.txn(ctx, append(g.mine(), s.sameEpoch()), []clientv3.Op{look})
	if err != nil {
		return l, maskTimeout(ctx, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !answer.Succeeded && !g.claimed.Load() { // a release may have passed the key on
		s.abandon(g) // if one key is gone, the others have to go
	}
	if !answer.Succeeded || s.grants[g.lease.Owner] != g || g.session.life.Err() != nil || s.expired(g) {
		return l, locking.ErrLost
	}
	g.lease.Until = g.session.until // expire checks it when the timer fires
	return g.lease, nil
}

// Release frees the keys, if l still holds all of them. If one is lost, it returns
// locking.ErrLost, and the others are freed all the same, in the background: no other
// attempt has their names. After any other error the release is retried in the
// background. A second Release at the same time returns locking.ErrLost.
func (s *Store) Release(ctx context.Context, l locking.Lease) (err error) {
	defer describe(&err, "release", l.Keys)
	g, err := s.grantOf(l)
	if err == nil && g.claimed.Swap(true) {
		err = locking.ErrLost // the answer to the first Release lets the next attempt use the names
	}
	if err != nil {
		return err
	}
	held, next, err := g.free(ctx)
	if err = classify(ctx, err); err == nil && !held {
		err = locking.ErrLost
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.abandon(g)
	case next > 0 && s.grants[l.Owner] == g: // else it has expired, and its names are being removed
		s.passed[g.keys[0]] = &attempt{session: g.session, keys: g.keys, nonce: g.nonce, alone: true, created: g.created, fence: next}
		s.drop(g)
		s.settled(g.keys[0])
	case next == 0 && s.drop(g):
		s.nonces = append(s.nonces, g.nonce) // all requests under it are answered, or compare the fence
	}
	return err
}

// free deletes the names of a grant, and reports whether it still had all of them.
//
// If a request of this process waits for the one key, and no other process does, the key is passed to that request instead:
// the name is put again, at a new revision, which is the next fence. So a grant within a process is one request to etcd.
// It is not tried if another process had a waiter when this attempt entered the queue: that process most often has one again.
//
// A delete of one name is faster than a transaction, and needs no comparison: until the nonce is used again, only
// this attempt can have put it.
func (g *grant) free(ctx context.Context) (held bool, next int64, err error) {
	s, key := g.session.store, g.keys[0]
	if len(g.keys) > 1 {
		answer, err := s.txn(ctx, g.mine(), g.deletes())
		return err == nil && answer.Succeeded, 0, err
	}
	if g.alone && len(s.queue.At(key, 1)) == 1 {
		alone := clientv3.Compare(clientv3.CreateRevision(s.queueOf(key)), "<", g.created+1).WithPrefix()
		again := clientv3.OpPut(g.name(key), "", clientv3.WithLease(g.session.id))
		answer, err := s.txn(ctx, append(g.mine(), alone, s.sameEpoch()), []clientv3.Op{again})
		switch {
		case err == nil && answer.Header.ClusterId != s.epoch.cluster:
			return false, 0, ErrEpoch
		case err == nil && answer.Succeeded:
			return true, answer.Header.Revision, nil
		case err != nil && !refused(err) && !errors.Is(err, rpctypes.ErrNoSpace):
			return false, 0, err
		} // a delete needs no space
	}
	limited, cancel := within(ctx, requestTimeout(s.ttl))
	defer cancel()
	answer, err := s.client.Delete(limited, g.name(key))
	return err == nil && answer.Deleted == 1, 0, err
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
	return a.grant()
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
		a.remove(false)
	}
}
