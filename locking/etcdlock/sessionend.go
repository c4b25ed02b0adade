package etcdlock

import (
	"context"
	"errors"
	"fmt"

	"shop/locking"
)

// The causes of a session's end.
var (
	errRevoked = fmt.Errorf("%w: the session's lease no longer exists in etcd", locking.ErrLost)
	errExpired = fmt.Errorf("%w: no keep-alive was answered for the TTL", locking.ErrLost)
	errOrphans = fmt.Errorf("%w: session abandoned: the waiters that an attempt may have left could not be removed", locking.ErrLost)
)

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
		s.down = errNoAnswer // etcd does not answer: ready need not wait until opening the next session fails
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
