package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// run keeps the Store's session alive, and opens a new one when it is dead, until
// the Store is closed.
func (s *Store) run(x *session) {
	x.keep()
	for s.life.Err() == nil {
		next, err := s.open(s.life)
		if err != nil {
			s.reconnect()
			sleep(s.life, s.ttl/12)
			continue
		}
		next.keep()
	}
}

// open makes a session and stores it for ready, or the error.
func (s *Store) open(ctx context.Context) (*session, error) {
	x, err := s.newSession(ctx)
	s.mu.Lock()
	s.session, s.down = x, err
	close(s.tried)
	s.tried = make(chan struct{})
	s.mu.Unlock()
	if err == nil && s.life.Err() != nil {
		x.revoke() // Close did not see this session
	}
	return x, err
}

// newSession makes a session: etcd grants its lease.
func (s *Store) newSession(ctx context.Context) (*session, error) {
	limited, cancel := within(ctx, requestTimeout(s.ttl))
	defer cancel()
	sent := time.Now()
	lease, err := s.client.Grant(limited, int64(s.ttl/time.Second))
	if err != nil {
		return nil, s.explain(ctx, maskTimeout(ctx, err))
	}
	if granted := time.Duration(lease.TTL) * time.Second; granted != s.ttl {
		_, _ = s.client.Revoke(limited, lease.ID)
		return nil, fmt.Errorf("%w: %v: etcd makes it %v", ErrTTL, s.ttl, granted)
	}
	x := &session{store: s, id: lease.ID, until: sent.Add(s.trust)}
	x.life, x.end = context.WithCancelCause(s.life)
	return x, nil
}

// keep renews the session every third of the TTL, or after a twelfth if there was no
// answer, until it is dead.
func (x *session) keep() {
	ttl := x.store.ttl
	for pause := ttl / 3; sleep(x.life, pause); {
		pause = ttl / 3
		if x.renew(x.life) != nil {
			pause = ttl / 12
		}
	}
}

// renew sends a keep-alive. Its trust counts from the sending. An answer after the end of
// the trust comes too late: the process was paused, and etcd may have expired the lease.
// A session that is dead is not kept alive.
func (x *session) renew(ctx context.Context) error {
	s := x.store
	s.mu.Lock()
	until, dead := x.until, context.Cause(x.life)
	s.mu.Unlock()
	if dead != nil {
		return dead
	}
	sent := time.Now()
	limited, cancel := context.WithTimeout(ctx, min(requestTimeout(s.ttl), until.Sub(sent)))
	defer cancel()
	_, err := s.client.KeepAliveOnce(limited, x.id) // no WithRequireLeader: if a member without a leader refuses, this retries in a busy loop

	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !time.Now().Before(x.until):
		x.kill(errExpired)
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		x.kill(errRevoked)
	case err != nil:
		s.reconnect()
		return fmt.Errorf("keep-alive: %w", maskTimeout(ctx, err))
	case x.until.Before(sent.Add(s.trust)):
		x.until = sent.Add(s.trust)
	}
	return context.Cause(x.life)
}
