package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

// session is one lease of etcd, to which a Store's keys are attached. A Store uses one
// at a time for new work; an older one may still have Leases.
type session struct {
	store *Store
	id    clientv3.LeaseID
	life  context.Context // ends when no new work may use the session, with the reason as its cause
	end   context.CancelCauseFunc
	until time.Time // end of the trust; guarded by the Store's mutex
}

// The causes of a session's end.
var (
	errRevoked = fmt.Errorf("%w: the session's lease no longer exists in etcd", locking.ErrLost)
	errExpired = fmt.Errorf("%w: no keep-alive was answered for the TTL", locking.ErrLost)
	errOrphans = fmt.Errorf("%w: session abandoned: the waiters that an attempt may have left could not be removed", locking.ErrLost)
)

// ready returns the session for an attempt. It waits while one is being opened, unless
// Store.down is set: then it returns that error at once.
func (s *Store) ready(ctx context.Context) (*session, error) {
	for {
		s.mu.Lock()
		x, down, tried := s.session, s.down, s.tried
		s.mu.Unlock()
		switch {
		case s.life.Err() != nil:
			return nil, ErrClosed
		case ctx.Err() != nil:
			return nil, ended(ctx)
		case x != nil:
			return x, nil
		case down != nil:
			return nil, fmt.Errorf("no session: %w", down)
		}
		select {
		case <-tried:
		case <-ctx.Done():
		case <-s.life.Done():
		}
	}
}

// die ends the session: see kill.
func (x *session) die(why error) {
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	x.kill(why)
}

// kill ends the session, once: no new work uses it, and no keep-alive is sent. If its
// lease is gone from etcd, its Leases are lost at once; otherwise each holds until its
// Until, and the lease is revoked after the last. The caller holds the mutex.
func (x *session) kill(why error) {
	if x.life.Err() != nil {
		return
	}
	x.end(why)
	s, revoked := x.store, errors.Is(why, errRevoked)
	s.session, s.down = nil, nil
	if !revoked {
		s.down = fmt.Errorf("%w (%v)", errNoAnswer, why) // etcd does not answer: ready need not wait until opening the next session fails
	}
	for _, g := range s.grants {
		if revoked && g.session == x {
			s.drop(g)
		}
	}
	x.retire()
}

// retire revokes the lease of a dead session after its last Lease, which deletes
// everything that the session has left in etcd. The caller holds the mutex.
func (x *session) retire() {
	s := x.store
	if x.life.Err() == nil || s.life.Err() != nil || errors.Is(context.Cause(x.life), errRevoked) {
		return
	}
	for _, g := range s.grants {
		if g.session == x {
			return
		}
	}
	s.work.Go(x.revoke)
}

// revoke revokes the lease. It retries until etcd answers, or the TTL has passed.
func (x *session) revoke() {
	s := x.store
	_ = persist(s.life, s.ttl, requestTimeout(s.ttl), func(ctx context.Context) error {
		_, err := s.client.Revoke(ctx, x.id)
		return err
	})
}
