package etcdlock

import (
	"context"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

// grant is a Lease that this Store has given, and that is not over as far as the
// Store knows. It is in Store.grants for that long.
type grant struct {
	session *session
	ticket  *locking.Ticket[string]
	lease   locking.Lease // Until: guarded by the Store's mutex
	names   []string
	nonce   string
	timer   *time.Timer // deletes the keys at Until
}

// grant makes a Lease of an attempt that has come first. Its Until is as good as
// the session's last keep-alive. False: the session is dead.
func (s *Store) grant(a *attempt, t *locking.Ticket[string]) (locking.Lease, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := a.session
	if !time.Now().Before(x.until) {
		x.kill(errUnheard)
	}
	if x.dead != nil {
		return locking.Lease{}, false
	}
	g := &grant{session: x, ticket: t, names: a.names, nonce: a.nonce, lease: locking.Lease{
		Keys: a.keys, Owner: a.owner(), Fence: locking.Fence(a.fence), Until: x.until,
	}}
	x.held++
	s.grants[g.lease.Owner] = g
	g.timer = time.AfterFunc(time.Until(x.until), func() { s.expire(g) })
	return g.lease, true
}

// expire ends a grant at its Until: it was not renewed. The session lives on, and
// would keep the keys for ever.
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
	g.session.removeOrphans(g.names, "")
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
	g.ticket.Leave(g.lease.Keys...)
	g.session.held--
	g.session.retire()
}

// grantOf finds the grant that l is a copy of, and its Until. What is not known here is over.
func (s *Store) grantOf(l locking.Lease) (*grant, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, time.Time{}, ErrClosed
	}
	g := s.grants[l.Owner]
	if g == nil || g.lease.Fence != l.Fence || !slices.Equal(g.lease.Keys, l.Keys) {
		return nil, time.Time{}, locking.ErrLost
	}
	return g, g.lease.Until, nil
}

// Renew brings a later Until, that of a keep-alive which etcd has answered, and
// looks whether the keys are still ours. It returns locking.ErrLost, finally, if
// they are not, or if l was not renewed before its Until.
func (s *Store) Renew(ctx context.Context, l locking.Lease) (locking.Lease, error) {
	ctx, cancel := s.lifeOf(ctx)
	defer cancel()
	g, until, err := s.grantOf(l)
	if err == nil {
		err = g.session.fresher(ctx, until)
	}
	if err == nil {
		err = g.check(ctx)
	}
	if err == nil {
		until, err = s.extend(g)
	}
	if err != nil {
		return l, fmt.Errorf("etcdlock: renew %q: %w", l.Keys, err)
	}
	l.Until = until
	return l, nil
}

// check asks etcd whether the keys are still under this grant, in the Store's
// epoch. The read is there because etcd answers a transaction without one from what
// the member knows, which may be old.
func (g *grant) check(ctx context.Context) error {
	s := g.session.store
	limited, cancel := within(ctx, requestTimeout(s.ttl))
	defer cancel()
	answer, err := s.client.Txn(limited).If(append(mine(g.names, int64(g.lease.Fence)), s.sameEpoch())...).
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

// Release gives the keys back. It returns locking.ErrLost if one of them was not
// under this lease any more; the others are given back all the same. After
// any other error it goes on trying in the background.
func (s *Store) Release(ctx context.Context, l locking.Lease) error {
	ctx, cancel := s.lifeOf(ctx)
	defer cancel()
	g, _, err := s.grantOf(l)
	if err == nil {
		err = g.release(ctx)
	}
	if err != nil {
		return fmt.Errorf("etcdlock: release %q: %w", l.Keys, err)
	}
	return nil
}

// release deletes the keys if all of them are still those that were granted. If
// one is not, the lease was lost, and the others go in the background: no other
// attempt has their names.
func (g *grant) release(ctx context.Context) error {
	s := g.session.store
	limited, cancel := within(ctx, requestTimeout(s.ttl))
	defer cancel()
	answer, err := s.client.Txn(limited).If(mine(g.names, int64(g.lease.Fence))...).Then(deletes(g.names)...).Commit()
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
		s.nonces = append(s.nonces, g.nonce) // what was asked under it is answered, or compares the fence
		s.drop(g)
	}
	return err
}

// mine compares: all names are there, and of this fence.
func mine(names []string, fence int64) (all []clientv3.Cmp) {
	for _, n := range names {
		all = append(all, clientv3.Compare(clientv3.CreateRevision(n), "=", fence))
	}
	return all
}

func deletes(names []string) (all []clientv3.Op) {
	for _, n := range names {
		all = append(all, clientv3.OpDelete(n))
	}
	return all
}
