package etcdlock

import (
	"context"
	"fmt"
	"slices"
)

// tell wakes all who wait for something to change. The caller holds the mutex.
func (s *Store) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// lifeOf is ctx, which ends with the Store too, as ErrClosed.
func (s *Store) lifeOf(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life, func() { cancel(ErrClosed) })
	if s.life.Err() != nil {
		cancel(ErrClosed)
	}
	return ctx, func() { stop(); cancel(nil) }
}

// ready gives the session for an attempt, and the gate's revision for it. It
// waits while one is being opened, or a trace of an attempt removed; but if that
// has just failed, it says so at once: who cannot have the lock shall know soon.
func (s *Store) ready(ctx context.Context) (*session, int64, error) {
	for {
		s.mu.Lock()
		x, down, changed, closed := s.session, s.down, s.changed, s.closed
		wait, gateRev := x == nil, int64(0)
		if x != nil {
			gateRev = x.gateRev
			if wait = slices.ContainsFunc(x.traces.list, unsure); wait {
				down = x.traces.failed
			}
		}
		s.mu.Unlock()
		switch {
		case closed:
			return nil, 0, ErrClosed
		case ctx.Err() != nil:
			return nil, 0, ended(ctx)
		case !wait:
			return x, gateRev, nil
		case down != nil:
			return nil, 0, fmt.Errorf("no session: %w", plain(ctx, down))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, 0, ended(ctx)
		}
	}
}
