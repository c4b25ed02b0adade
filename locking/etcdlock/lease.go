package etcdlock

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

// grant is an attempt that is first in its queues, and its Lease. It is in Store.grants
// until the Store learns that the Lease is over.
type grant struct {
	*attempt
	lease locking.Lease // Until: guarded by the Store's mutex

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
	if s.timer == nil {
		s.timer = time.AfterFunc(time.Until(x.until), s.expire)
	}
	return g.lease, true
}

// expire is what the Store's timer calls: it ends the grants that were not renewed before
// their Until, and sets the timer to the next Until. The session continues, and would
// keep the keys for ever. The Until of a grant is never before those of earlier grants, so
// a new grant need not change the timer.
func (s *Store) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var next time.Time
	for _, g := range s.grants {
		if !s.expired(g) && (next.IsZero() || g.lease.Until.Before(next)) {
			next = g.lease.Until
		}
	}
	if s.timer = nil; !next.IsZero() {
		s.timer = time.AfterFunc(max(time.Until(next), s.ttl-s.trust), s.expire) // at most 100 times in a TTL
	}
}

// expired ends a grant that was not renewed before its Until. The timer may be late: the
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
	answer, err := s.txn(ctx, append(g.mine(), s.sameEpoch), []clientv3.Op{look})
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
	g.lease.Until = g.session.until // the timer keeps the earlier time; expire sets it again
	return g.lease, nil
}

// Release frees the keys, or passes the one key to the next waiter of this process, if l still holds all of them. If one is lost, it returns
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
	if err = s.classify(ctx, err); err == nil && !held {
		err = locking.ErrLost
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.abandon(g)
	case next > 0 && s.grants[l.Owner] == g: // else it has expired, and its names are being removed
		s.bequeath(g, next)
	case next == 0 && s.drop(g):
		s.nonces = append(s.nonces, g.nonce) // all requests under it are answered, or compare the fence
	}
	return err
}

// free deletes the names of a grant, and reports whether it still had all of them, or passes its key on: next is then the
// fence of the next grant.
//
// A delete of one name is faster than a transaction, and needs no comparison: until the nonce is used again, only
// this attempt can have put it.
func (g *grant) free(ctx context.Context) (held bool, next int64, err error) {
	s := g.session.store
	if len(g.keys) > 1 {
		answer, err := s.txn(ctx, g.mine(), g.deletes())
		return err == nil && answer.Succeeded, 0, err
	}
	if next, err = g.pass(ctx); next > 0 || err != nil {
		return err == nil, next, err
	}
	limited, cancel := within(ctx, requestTimeout(s.ttl))
	defer cancel()
	answer, err := s.client.Delete(limited, g.name(g.keys[0]))
	return err == nil && answer.Deleted == 1, 0, err
}
