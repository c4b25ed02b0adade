package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

// session is one lease of etcd, under which everything is stored. A Store has
// one at a time for new work; an older one may still have Leases under it.
type session struct {
	store    *Store
	id       clientv3.LeaseID
	done     chan struct{} // closed when it is dead
	renewNow chan struct{} // asks for a keep-alive now

	// The rest is guarded by the Store's mutex, and each change told by changed.

	dead   error     // why nothing goes on it any more; nil: alive
	until  time.Time // how long it may be trusted
	failed error     // the last keep-alive, nil if it was good
	fails  int       // how many were not

	held    int  // Leases under it
	retired bool // its end is known to etcd, or will be
}

// Why a session is dead.
var (
	errRevoked = fmt.Errorf("%w: etcd does not know the session's lease any more", locking.ErrLost)
	errUnheard = fmt.Errorf("%w: no keep-alive was answered for the TTL", locking.ErrLost)
	errOrphans = fmt.Errorf("%w: session given up: what an attempt may have left could not be removed", locking.ErrLost)
)

// open makes a session: a lease of etcd.
func (s *Store) open(ctx context.Context) (*session, error) {
	ctx, cancel := within(ctx, requestTimeout(s.ttl))
	defer cancel()
	sent := time.Now()
	lease, err := s.client.Grant(ctx, int64(s.ttl/time.Second))
	if err != nil {
		return nil, err
	}
	if granted := time.Duration(lease.TTL) * time.Second; granted != s.ttl {
		_, _ = s.client.Revoke(ctx, lease.ID)
		return nil, fmt.Errorf("%w: %v: etcd makes it %v", ErrTTL, s.ttl, granted)
	}
	return &session{
		store: s, id: lease.ID, until: sent.Add(s.trust),
		done: make(chan struct{}), renewNow: make(chan struct{}, 1),
	}, nil
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

// tell wakes all that wait for something to change. The caller holds the mutex.
func (s *Store) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// ready gives the session for an attempt. It waits while one is being opened; but if
// that has just failed, it says so at once.
func (s *Store) ready(ctx context.Context) (*session, error) {
	for {
		s.mu.Lock()
		x, down, changed, closed := s.session, s.down, s.changed, s.closed
		s.mu.Unlock()
		switch {
		case closed:
			return nil, ErrClosed
		case ctx.Err() != nil:
			return nil, ended(ctx)
		case x != nil:
			return x, nil
		case down != nil:
			return nil, fmt.Errorf("no session: %w", plain(ctx, down))
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// keep asks etcd each third of the TTL to keep the lease, and again after a
// twelfth if there was no answer, until the session is dead or the Store closed.
func (x *session) keep() {
	s := x.store
	timer := time.NewTimer(s.ttl / 3)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-x.renewNow:
		case <-x.done:
			return
		case <-s.life.Done():
			return
		}
		timer.Reset(x.keepOnce())
	}
}

// keepOnce asks once, and says when to ask again. The answer counts from the
// sending, and comes too late when the trust has ended meanwhile: then the
// process was asleep, and what has happened since is not known here.
func (x *session) keepOnce() (next time.Duration) {
	s := x.store
	s.mu.Lock()
	until := x.until
	s.mu.Unlock()
	sent := time.Now()
	ctx, cancel := context.WithTimeout(s.life, min(requestTimeout(s.ttl), until.Sub(sent)))
	defer cancel()
	_, err := s.client.KeepAliveOnce(ctx, x.id)

	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tell()
	switch {
	case !time.Now().Before(x.until):
		x.kill(errUnheard)
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		x.kill(errRevoked)
	case err != nil:
		x.failed = fmt.Errorf("keep-alive: %w", plain(s.life, err))
		x.fails++
		s.reconnect()
		return time.Until(sent.Add(s.ttl / 12))
	default:
		x.failed = nil
		x.until = sent.Add(s.trust)
	}
	return time.Until(sent.Add(s.ttl / 3))
}

// fresher waits until the session's trust goes beyond after.
func (x *session) fresher(ctx context.Context, after time.Time) error {
	s := x.store
	for before := -1; ; {
		s.mu.Lock()
		dead, until, failed, fails, changed := x.dead, x.until, x.failed, x.fails, s.changed
		s.mu.Unlock()
		if before < 0 {
			before = fails
		}
		switch {
		case dead != nil:
			return dead
		case until.After(after):
			return nil
		case fails > before:
			return failed
		}
		select {
		case x.renewNow <- struct{}{}:
		default: // asked for already
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ended(ctx)
		}
	}
}

// die ends the session: see kill.
func (x *session) die(why error) {
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	x.kill(why)
}

// kill ends the session, once: nothing new goes on it, and it is not kept alive. What
// etcd has forgotten, or may have, is lost at once; otherwise each Lease goes on to
// its Until, and the lease is revoked after the last. The caller holds the mutex.
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
			s.down = errNoAnswer // etcd is silent: no need to wait for the next session's failure
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
		ctx, cancel := within(context.WithoutCancel(s.life), requestTimeout(s.ttl))
		_, err := s.client.Revoke(ctx, x.id)
		cancel()
		if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) || !sleep(s.life, s.ttl/12) {
			return
		}
	}
}
