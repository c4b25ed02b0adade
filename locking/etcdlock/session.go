package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// session is one lease of etcd, under which everything is stored. A Store has
// one at a time for new work; an older one may still have Leases under it.
type session struct {
	store *Store
	id    clientv3.LeaseID
	gate  string
	done  chan struct{} // closed when it is dead
	kick  chan struct{} // asks for a keep-alive now

	// The rest is guarded by the Store's mutex, and each change told by changed.

	dead   error     // why nothing goes on it any more; nil: alive
	until  time.Time // how long it may be trusted
	failed error     // the last keep-alive, nil if it was good
	fails  int       // how many were not

	gateRev int64 // the revision of the gate that attempts compare
	held    int   // Leases under it
	retired bool  // its end is known to etcd, or will be
	traces  traces
}

// open makes a session: a lease, and the gate under it. What remains of one that
// was made in part ends with its TTL.
func (s *Store) open(ctx context.Context) (*session, error) {
	ctx, cancel := within(ctx, patience(s.ttl))
	defer cancel()
	sent := time.Now()
	lease, err := s.client.Grant(ctx, int64(s.ttl/time.Second))
	if err != nil {
		return nil, err
	}
	x := &session{
		store: s, id: lease.ID, gate: s.gate(lease.ID), until: sent.Add(s.trust),
		done: make(chan struct{}), kick: make(chan struct{}, 1),
	}
	if granted := time.Duration(lease.TTL) * time.Second; granted != s.ttl {
		_, _ = s.client.Revoke(ctx, x.id)
		return nil, fmt.Errorf("%w: %v: etcd makes it %v", ErrTTL, s.ttl, granted)
	}
	put, err := s.client.Put(ctx, x.gate, "", clientv3.WithLease(x.id))
	if err != nil {
		return nil, err
	}
	x.gateRev = put.Header.Revision
	return x, nil
}

// run keeps the Store's session alive, and opens another when it is dead, until
// the Store is closed.
func (s *Store) run(x *session) {
	for x != nil {
		x.keep()
		x = s.reopen()
	}
}

// reopen tries until it has a session. nil: the Store is closed.
func (s *Store) reopen() *session {
	for s.life.Err() == nil {
		x, err := s.open(s.life)
		if s.opened(x, err) {
			return x
		}
		if err == nil {
			x.revoke() // closed meanwhile
			break
		}
		s.reconnect()
		sleep(s.life, s.ttl/12)
	}
	return nil
}

// opened makes a new session, or the lack of one, known.
func (s *Store) opened(x *session, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.session, s.down = x, err
	s.tell()
	return err == nil
}

// die ends the session: see kill.
func (x *session) die(why error) {
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	x.kill(why)
}

// kill ends the session, once: nothing new goes on it, and nobody keeps it
// alive. What etcd has forgotten, or may have, is lost at once; otherwise each
// Lease goes on to its Until, and the lease is revoked after the last. The
// caller holds the mutex.
func (x *session) kill(why error) {
	if x.dead != nil {
		return
	}
	x.dead = why
	close(x.done)
	s := x.store
	if s.session == x {
		s.session, s.down = nil, nil
		if !errors.Is(why, errRevoked) {
			s.down = errNoAnswer // etcd is silent: nobody needs to wait for the next session's failure
		}
	}
	s.tell()
	if errors.Is(why, errRevoked) || errors.Is(why, errUnheard) {
		for _, g := range s.grants {
			if g.session == x {
				s.drop(g)
			}
		}
	}
	x.retire()
}

// retire revokes the lease of a dead session when no Lease is under it any more.
// What is left of it in etcd, in whatever state, is gone then. The caller holds
// the mutex.
func (x *session) retire() {
	s := x.store
	if x.dead == nil || x.held > 0 || x.retired || s.closed || errors.Is(x.dead, errRevoked) {
		return
	}
	x.retired = true
	s.work.Go(x.revoke)
}

// revoke tries until etcd answers, or the TTL has done it.
func (x *session) revoke() {
	s := x.store
	for end := time.Now().Add(s.ttl); time.Now().Before(end); {
		ctx, cancel := within(context.WithoutCancel(s.life), patience(s.ttl))
		_, err := s.client.Revoke(ctx, x.id)
		cancel()
		if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) || !sleep(s.life, s.ttl/12) {
			return
		}
	}
}
