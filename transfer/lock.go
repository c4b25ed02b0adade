package transfer

import (
	"context"
	"errors"

	"shop/locking"
)

// errUnfenced is a lease with fence 0: of a store that cannot fence. Every holder
// would pass the guard, so that none may begin.
var errUnfenced = &UnavailableError{errors.New("its lease has no fence: this store cannot fence, and transfers need one that does")}

// underLock runs fn while the store grants all names to this job, in one
// acquisition: all or none, so that nobody waits for one account with the other
// in his hands.
//
// What fn says is what happened. If the lease went away meanwhile, fn's ctx
// ended with locking.ErrLost as its cause, and fn either stopped in time, or
// committed, and then the transfer stands. A release that fails changes neither.
func (s *Service) underLock(ctx context.Context, j *job, store locking.Store, names []string, fn func(context.Context, locking.Lease) (Reply, error)) (Reply, error) {
	if err := s.gate.pass(); err != nil {
		s.count(Unavailable, j.strategy)
		return Reply{}, err
	}
	var (
		reply   Reply
		fnErr   error
		entered bool
		options = s.lock
	)
	options.Observer = locking.Observers(s.lock.Observer, s.gate.listen)
	err := locking.Do(ctx, store, options, names, func(ctx context.Context, l locking.Lease) error {
		entered = true
		if fnErr = errUnfenced; l.Fence > 0 {
			reply, fnErr = fn(ctx, l)
		}
		return fnErr
	})
	if entered {
		return reply, fnErr
	}
	return Reply{}, s.notGranted(ctx, j, err)
}

// notGranted tells apart why there is no lock: the caller left, someone else has
// it, or the store does not answer. "No answer" is never taken for a grant, and
// no money moves without one.
func (s *Service) notGranted(ctx context.Context, j *job, err error) error {
	switch {
	case errors.Is(err, locking.ErrKey), errors.Is(err, locking.ErrLost): // ErrLost: granted too late to be used
		return err
	case errors.Is(err, ErrSource): // an answer, and one that asking again does not change
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, locking.ErrBusy):
		return err
	}
	s.count(Unavailable, j.strategy)
	return s.gate.close(err)
}
