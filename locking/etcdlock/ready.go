package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"shop/locking"
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

// attempts makes one attempt after another until one ends with a grant, or in a
// way that the next would too. Each begins when certainly nothing is left of the
// one before.
func (s *Store) attempts(ctx context.Context, keys []string, p *place, enter func(*attempt, context.Context) error) (locking.Lease, error) {
	var unknown error // of the first attempt that had no answer
	var giveUp time.Time
	for {
		x, gateRev, err := s.ready(ctx)
		switch {
		case err != nil && unknown != nil:
			return locking.Lease{}, fmt.Errorf("%w; %w", unknown, err)
		case err != nil:
			return locking.Lease{}, err
		case unknown != nil && time.Now().After(giveUp):
			return locking.Lease{}, errUndone
		}
		a := x.attempt(keys, gateRev)
		sent := time.Now()
		err = enter(a, ctx)
		if err == nil {
			if l, ok := s.grant(a, p); ok {
				return l, nil
			}
			continue // the session died under it
		}
		s.undo(a, err)
		silent := errors.Is(err, locking.ErrOutcomeUnknown) && ctx.Err() == nil
		switch {
		case !silent && !errors.Is(err, errAgain):
			return locking.Lease{}, a.inQueue(ctx, err)
		case silent && unknown == nil:
			unknown, giveUp = err, sent.Add(s.ttl/2)
		}
	}
}

// undo takes care that nothing stays of an attempt that has failed.
func (s *Store) undo(a *attempt, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case a.fence > 0:
		a.session.forget(a.names, false)
	case errors.Is(err, locking.ErrOutcomeUnknown):
		a.session.forget(a.names, true)
	}
}

// inQueue adds what ctx's end found it waiting for.
func (a *attempt) inQueue(ctx context.Context, err error) error {
	if a.fence > 0 && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", locking.ErrBusy, err)
	}
	return err
}
