package zklock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"shop/locking"
)

// grant makes a Lease of a node that is the first in its queue. False: it is too late for that.
func (s *Store) grant(n *node) (locking.Lease, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	until := n.until()
	if n.session.life.Err() != nil || !time.Now().Before(until) {
		return locking.Lease{}, false
	}
	n.lease = locking.Lease{Keys: []string{n.key}, Owner: n.owner, Fence: locking.Fence(n.fence), Until: until}
	s.leases[n.owner] = n
	n.timer = time.AfterFunc(time.Until(until), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.expired(n)
	})
	return n.lease, true
}

// expired ends a Lease that was not renewed before its Until, and frees its key: the session, and
// with it the node, may live on. The caller holds the mutex.
func (s *Store) expired(n *node) bool {
	if s.leases[n.owner] != n {
		return true
	}
	if left := time.Until(n.lease.Until); left > 0 {
		n.timer.Reset(left)
		return false
	}
	s.lose(n)
	return true
}

// drop ends a Lease in this Store. The caller holds the mutex.
func (s *Store) drop(n *node) {
	delete(s.leases, n.owner)
	n.timer.Stop()
	if s.last == n.path {
		s.last = ""
	}
}

// lose ends a Lease in this Store, and removes what may be left of its node. The caller holds the mutex.
func (s *Store) lose(n *node) {
	s.drop(n)
	s.background(func() { _ = n.remove() })
}

// nodeOf returns the node of a Lease that is held.
func (s *Store) nodeOf(l locking.Lease) (*node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.leases[l.Owner]
	switch {
	case s.life.Err() != nil:
		return nil, ErrClosed
	case n == nil || n.lease.Fence != l.Fence || !slices.Equal(n.lease.Keys, l.Keys) || s.expired(n):
		return nil, locking.ErrLost
	}
	return n, nil
}

// Renew returns l with a later Until, after ZooKeeper's leader has confirmed that its node exists. It
// returns locking.ErrLost, finally, if the node or the session is gone, or if l was not renewed
// before its Until.
func (s *Store) Renew(ctx context.Context, l locking.Lease) (_ locking.Lease, err error) {
	defer describe(&err, "renew", l.Keys)
	n, err := s.nodeOf(l)
	if err != nil {
		return l, err
	}
	var sent time.Time
	err = s.await(ctx, func() error {
		return s.call(func() (err error) { sent, err = n.check(); return err })
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case isGone(err):
		if s.leases[n.owner] == n {
			s.lose(n)
		}
		return l, locking.ErrLost
	case s.expired(n):
		return l, locking.ErrLost
	case err != nil:
		return l, locking.NoAnswer(ctx, err)
	}
	if until := sent.Add(n.trust()); until.After(n.lease.Until) {
		n.lease.Until = until // the timer is set again when it fires
	}
	return n.lease, nil
}

// Release frees the key. It returns locking.ErrLost if l did not hold it any more. After any other
// error the release is repeated in the background.
func (s *Store) Release(ctx context.Context, l locking.Lease) (err error) {
	defer describe(&err, "release", l.Keys)
	n, err := s.nodeOf(l)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.drop(n)
	s.mu.Unlock()
	switch err := n.free(ctx); {
	case err == nil, errors.Is(err, ErrClosed):
		return err
	case errors.Is(err, zk.ErrNoNode):
		return locking.ErrLost
	default:
		return locking.NoAnswer(ctx, err)
	}
}
