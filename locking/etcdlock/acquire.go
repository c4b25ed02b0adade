package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"shop/locking"
)

// queueUp waits for the turn in this process.
func (s *Store) queueUp(ctx context.Context, keys []string) (*place, error) {
	s.mu.Lock()
	p := s.lines.join(keys)
	s.mu.Unlock()
	select {
	case <-p.turn:
		return p, nil
	case <-ctx.Done():
		s.leave(p)
		return nil, fmt.Errorf("%w: %w", locking.ErrBusy, ended(ctx))
	}
}

func (s *Store) leave(p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines.leave(p)
}

// acquire is both ways to acquire: a place in this process, then one in etcd.
func (s *Store) acquire(ctx context.Context, keys []string, here func(context.Context, []string) (*place, error),
	there func(*attempt, context.Context) error,
) (locking.Lease, error) {
	fail := func(err error) (locking.Lease, error) {
		return locking.Lease{}, fmt.Errorf("etcdlock: acquire %q: %w", keys, err)
	}
	keys, err := checkKeys(keys)
	if err != nil {
		return locking.Lease{}, err
	}
	ctx, cancel := s.lifeOf(ctx)
	defer cancel()
	if ctx.Err() != nil {
		return fail(ended(ctx))
	}
	p, err := here(ctx, keys)
	if err != nil {
		return fail(err)
	}
	lease, err := s.attempts(ctx, keys, p, there)
	if err != nil {
		s.leave(p)
		return fail(p.late(ctx, err))
	}
	return lease, nil
}

// late adds what ctx's end came from, if the turn came too late: others had the
// keys, and what was left of the time says nothing about etcd.
func (p *place) late(ctx context.Context, err error) error {
	if p.queued && ctx.Err() != nil && !errors.Is(err, locking.ErrBusy) {
		return fmt.Errorf("%w: %w", locking.ErrBusy, err)
	}
	return err
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
	case a.fence > 0, errors.Is(err, ErrNoSpace):
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
