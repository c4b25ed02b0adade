package etcdlock

import (
	"context"
	"slices"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

// grant is an attempt that has come first, and its Lease, which is not over as far as
// the Store knows. It is in Store.grants for that long.
type grant struct {
	*attempt
	lease locking.Lease // Until: guarded by the Store's mutex
	timer *time.Timer   // deletes the keys at Until
}

// grant makes a Lease of an attempt that has come first. Its Until is as good as
// the session's last keep-alive. False: the session is dead.
func (a *attempt) grant() (locking.Lease, bool) {
	x, s := a.session, a.session.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if !time.Now().Before(x.until) {
		x.kill(errUnheard)
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

// expire ends a grant at its Until: it was not renewed. The session lives on, and
// would keep the keys for ever.
func (s *Store) expire(g *grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if more := time.Until(g.lease.Until); more > 0 {
		g.timer.Reset(more) // it was renewed
		return
	}
	s.abandon(g)
}

// abandon ends a grant of which something may be left in etcd. The caller holds the
// mutex.
func (s *Store) abandon(g *grant) {
	if s.drop(g) {
		g.remove(false)
	}
}

// drop ends a grant for this Store: the next in the process may go to etcd. False: it
// was over already, and its names may be another's. The caller holds the mutex.
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

// grantOf finds the grant that l is a copy of. What is not known here is over.
func (s *Store) grantOf(l locking.Lease) (*grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.grants[l.Owner]
	switch {
	case s.life.Err() != nil:
		return nil, ErrClosed
	case g == nil || g.lease.Fence != l.Fence || !slices.Equal(g.keys, l.Keys):
		return nil, locking.ErrLost
	}
	return g, nil
}

// Renew brings a later Until, that of a keep-alive which etcd has answered, and
// looks whether the keys are still ours. It returns locking.ErrLost, finally, if
// they are not, or if l was not renewed before its Until.
func (s *Store) Renew(ctx context.Context, l locking.Lease) (_ locking.Lease, err error) {
	defer describe(&err, "renew", l.Keys)
	g, err := s.grantOf(l)
	if err == nil {
		err = g.session.renew(ctx)
	}
	if err != nil {
		return l, err
	}
	// The read is there because etcd answers a transaction without one from what the
	// member knows, which may be old.
	look := clientv3.OpGet(g.name(g.keys[0]), clientv3.WithCountOnly())
	answer, err := s.txn(ctx, append(g.mine(), s.sameEpoch()), []clientv3.Op{look})
	if err != nil {
		return l, maskTimeout(ctx, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !answer.Succeeded {
		s.abandon(g) // if one key is gone, the others have to go
	}
	if s.grants[g.lease.Owner] != g || g.session.life.Err() != nil {
		return l, locking.ErrLost
	}
	g.lease.Until = g.session.until // the timer looks when it fires
	return g.lease, nil
}

// Release gives the keys back, if all of them are still those that were granted. If one
// is not, it returns locking.ErrLost, and the others are given back all the same, in the
// background: no other attempt has their names. After any other error it goes on
// trying there.
func (s *Store) Release(ctx context.Context, l locking.Lease) (err error) {
	defer describe(&err, "release", l.Keys)
	g, err := s.grantOf(l)
	if err != nil {
		return err
	}
	answer, err := s.txn(ctx, g.mine(), g.deletes())
	if err = classify(ctx, err); err == nil && !answer.Succeeded {
		err = locking.ErrLost
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.abandon(g)
	case s.drop(g):
		s.nonces = append(s.nonces, g.nonce) // what was asked under it is answered, or compares the fence
	}
	return err
}
