package etcdlock

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

// grant is a Lease that this Store has given, and that is not over as far as the
// Store knows. It is in Store.grants for that long.
type grant struct {
	session *session
	place   *place
	lease   locking.Lease // Until: guarded by the Store's mutex
	names   []string
	mark    string
	timer   *time.Timer // deletes the keys at Until
}

// grant makes a Lease of an attempt that has come first. Its Until is as good as
// the session's last keep-alive. False: the session is dead.
func (s *Store) grant(a *attempt, p *place) (locking.Lease, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := a.session
	if !time.Now().Before(x.until) {
		x.kill(errUnheard)
	}
	if x.dead != nil {
		return locking.Lease{}, false
	}
	g := &grant{session: x, place: p, names: a.names, mark: a.mark, lease: locking.Lease{
		Keys: a.keys, Owner: a.owner(), Fence: locking.Fence(a.fence), Until: x.until,
	}}
	x.held++
	s.grants[g.lease.Owner] = g
	g.timer = time.AfterFunc(time.Until(x.until), func() { s.expire(g) })
	return g.lease, true
}

// expire ends a grant at its Until: nobody has renewed it. The session lives on,
// and would keep the keys for ever.
func (s *Store) expire(g *grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.grants[g.lease.Owner] != g {
		return
	}
	if left := time.Until(g.lease.Until); left > 0 {
		g.timer.Reset(left) // it was renewed
		return
	}
	s.abandon(g)
}

// abandon ends a grant of which something may be left in etcd. The caller holds the
// mutex.
func (s *Store) abandon(g *grant) {
	if s.grants[g.lease.Owner] != g {
		return // over already, and its names may be another's
	}
	g.session.forget(g.names, false)
	s.drop(g)
}

// drop ends a grant for this Store: the next in the process may go to etcd. The
// caller holds the mutex.
func (s *Store) drop(g *grant) {
	if s.grants[g.lease.Owner] != g {
		return
	}
	delete(s.grants, g.lease.Owner)
	g.timer.Stop()
	s.lines.leave(g.place)
	g.session.held--
	g.session.retire()
}

// grantOf finds the grant that l is a copy of. What is not known here is over.
func (s *Store) grantOf(l locking.Lease) (*grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	g := s.grants[l.Owner]
	if g == nil || g.lease.Fence != l.Fence || !slices.Equal(g.lease.Keys, l.Keys) {
		return nil, locking.ErrLost
	}
	return g, nil
}

// check asks etcd whether the keys are still under this grant, and it hands out
// fences as it did. The read is there
// because etcd answers a transaction without one from what the member knows,
// which may be old.
func (g *grant) check(ctx context.Context) error {
	s := g.session.store
	limited, cancel := within(ctx, patience(s.ttl))
	defer cancel()
	answer, err := s.client.Txn(limited).If(append(mine(g.names, int64(g.lease.Fence)), s.sameSource())...).
		Then(clientv3.OpGet(g.names[0], clientv3.WithCountOnly())).Commit()
	switch {
	case err != nil:
		return plain(ctx, err)
	case answer.Succeeded:
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandon(g) // if one key is gone, the others have to go
	return locking.ErrLost
}

func (g *grant) deadline() time.Time {
	s := g.session.store
	s.mu.Lock()
	defer s.mu.Unlock()
	return g.lease.Until
}

// extend moves Until to the session's.
func (s *Store) extend(g *grant) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := g.session
	if s.grants[g.lease.Owner] != g || x.dead != nil {
		return time.Time{}, locking.ErrLost
	}
	g.lease.Until = x.until // the timer looks when it fires
	return x.until, nil
}

// release deletes the keys if all of them are still those that were granted. If
// one is not, the lease was lost, and the others go in the background: no other
// attempt has their names.
func (g *grant) release(ctx context.Context) error {
	s := g.session.store
	limited, cancel := within(ctx, patience(s.ttl))
	defer cancel()
	var all []clientv3.Op
	for _, n := range g.names {
		all = append(all, clientv3.OpDelete(n))
	}
	answer, err := s.client.Txn(limited).If(mine(g.names, int64(g.lease.Fence))...).Then(all...).Commit()
	err = classify(ctx, err)
	if err == nil && !answer.Succeeded {
		err = locking.ErrLost
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.abandon(g)
	case s.grants[g.lease.Owner] == g:
		s.marks = append(s.marks, g.mark) // what was asked under it is answered, or compares the fence
		s.drop(g)
	}
	return err
}
