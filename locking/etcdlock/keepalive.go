package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// keep asks etcd each third of the TTL to keep the lease, and again after a
// twelfth if there was no answer, until the session is dead or the Store closed.
func (x *session) keep() {
	s := x.store
	timer := time.NewTimer(s.ttl / 3)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-x.kick:
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
// process was asleep, and nobody knows what has happened since.
func (x *session) keepOnce() (next time.Duration) {
	s := x.store
	sent := time.Now()
	ctx, cancel := context.WithTimeout(s.life, min(patience(s.ttl), x.trust().Sub(sent)))
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

// trust is until when the session may be trusted.
func (x *session) trust() time.Time {
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	return x.until
}

// fresher waits until the session's trust goes beyond after.
func (x *session) fresher(ctx context.Context, after time.Time) error {
	s := x.store
	for first, before := true, 0; ; first = false {
		s.mu.Lock()
		if first {
			before = x.fails
		}
		dead, until, failed, fails, changed := x.dead, x.until, x.failed, x.fails, s.changed
		s.mu.Unlock()
		switch {
		case dead != nil:
			return dead
		case until.After(after):
			return nil
		case fails > before:
			return failed
		}
		select {
		case x.kick <- struct{}{}:
		default: // asked for already
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ended(ctx)
		}
	}
}
