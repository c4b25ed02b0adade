package etcdlock

import (
	"context"
	"errors"
	"fmt"

	"shop/locking"
)

// Why a session is dead.
var (
	errRevoked = fmt.Errorf("%w: etcd does not know the session's lease any more", locking.ErrLost)
	errUnheard = fmt.Errorf("%w: no keep-alive was answered for the TTL", locking.ErrLost)
	errOrphans = fmt.Errorf("%w: session given up: what an attempt may have left could not be removed", locking.ErrLost)
)

// die ends the session: see kill.
func (x *session) die(why error) {
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	x.kill(why)
}

// kill ends the session, once: nothing new goes on it, and it is not kept alive. If
// etcd has forgotten it, its Leases are lost at once; otherwise each goes on to its
// Until, and the lease is revoked after the last. The caller holds the mutex.
func (x *session) kill(why error) {
	if x.life.Err() != nil {
		return
	}
	x.end(why)
	s, revoked := x.store, errors.Is(why, errRevoked)
	s.session, s.down = nil, nil
	if !revoked {
		s.down = errNoAnswer // etcd is silent: no need to wait for the next session's failure
	}
	for _, g := range s.grants {
		if revoked && g.session == x {
			s.drop(g)
		}
	}
	x.retire()
}

// retire revokes the lease of a dead session when no Lease is under it any more, and
// with it goes what is left in etcd, in whatever state. The caller holds the mutex.
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

// revoke tries until etcd answers, or the TTL has done it.
func (x *session) revoke() {
	s := x.store
	_ = persist(s.life, s.ttl, requestTimeout(s.ttl), func(ctx context.Context) error {
		_, err := s.client.Revoke(ctx, x.id)
		return err
	})
}
