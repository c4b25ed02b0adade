package inventory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
)

// attemptsMax bounds how often one request runs its transaction; the pauses
// between the attempts grow to pauseMax and add up to about two seconds.
const (
	attemptsMax = 20
	pauseBase   = 2 * time.Millisecond
	pauseMax    = 250 * time.Millisecond
)

// intent is one request on its way: what survives from attempt to attempt.
type intent struct {
	req      Request
	strategy string
	unknown  bool // an earlier COMMIT may have happened: no error may say otherwise
}

// work decides, queues what is to be written, and returns the reply that it stored.
type work func(ctx context.Context, t *tx) (Reply, error)

// begin opens a READ COMMITTED transaction: each statement sees what was
// committed before that statement, so that what is read after a lock is fresh.
// Said aloud, because a server may have another default.
func begin(t *tx) { t.exec("begin isolation level read committed") }

// transact runs one request to its answer. A lost race runs the whole
// transaction again, including the reading that decides what is written; so does
// a COMMIT without answer: its successor inserts the same key, waits for the
// first to end, and either conflicts with it or proves that it never happened.
func (s *Service) transact(ctx context.Context, in *intent, open func(*tx), do work) (Reply, error) {
	var err error
	for try := 0; try < attemptsMax; try++ {
		if pauseErr := pause(ctx, try); pauseErr != nil {
			return s.giveUp(ctx, in, pauseErr)
		}
		var reply Reply
		if reply, err = s.attempt(ctx, in, open, do); err == nil {
			return s.settled(in, reply), nil
		}
		if errors.Is(err, errKeyTaken) {
			reply, found, lookErr := s.look(ctx, in.req)
			if found || errors.Is(lookErr, ErrKeyReused) {
				return s.settled(in, reply), lookErr
			}
		}
		if !s.again(in, err) {
			break
		}
	}
	return s.giveUp(ctx, in, err)
}

// attempt is one transaction.
func (s *Service) attempt(ctx context.Context, in *intent, open func(*tx), do work) (Reply, error) {
	conn, err := s.connection(ctx)
	if err != nil {
		return Reply{}, err
	}
	defer conn.Release()
	t := &tx{conn: conn, batch: &pgx.Batch{}, keyAt: -1}
	if s.failpoint != nil {
		t.hook = func(ctx context.Context, step Step) { s.failpoint(ctx, step, in.strategy) }
	}
	defer t.rollback(ctx)

	open(t)
	if err := t.step(ctx, AfterAcquire); err != nil {
		return Reply{}, err
	}
	reply, err := do(ctx, t)
	if errors.Is(err, ErrOutOfStock) || errors.Is(err, ErrAlreadyCancelled) {
		reply, err = s.refuse(t, in, err)
	}
	if err != nil {
		return Reply{}, err
	}
	return reply, t.commit(ctx)
}

// refuse stores a refusal. It changes nothing but the key, so that the row
// locks are given back first: buyers of what is sold out do not queue for an fsync.
func (s *Service) refuse(t *tx, in *intent, why error) (Reply, error) {
	reply, err := s.encode(Order{}, why)
	if err != nil {
		return Reply{}, fmt.Errorf("inventory: encode refusal: %w", err)
	}
	t.batch = &pgx.Batch{}
	t.exec("rollback")
	begin(t)
	t.storeReply(in, reply)
	return reply, nil
}

// again says whether another attempt may end differently, and counts why.
func (s *Service) again(in *intent, err error) bool {
	var ambiguous *ambiguousError
	switch {
	case errors.As(err, &ambiguous):
		in.unknown = true
		s.count(Ambiguous, in.strategy)
	case errors.Is(err, errGuard):
		s.count(GuardTripped, in.strategy)
	case errors.Is(err, errConflict), errors.Is(err, errKeyTaken), errors.Is(err, errLostConn):
		s.count(Retried, in.strategy)
	default:
		return false
	}
	return true
}

// settled is the end of a request whose outcome is known.
func (s *Service) settled(in *intent, reply Reply) Reply {
	if in.unknown {
		in.unknown = false
		s.count(Resolved, in.strategy)
	}
	return reply
}

// giveUp is the end of a request without an answer. Never guess: after a COMMIT
// without answer, "busy" or "cancelled" would claim that nothing happened.
func (s *Service) giveUp(ctx context.Context, in *intent, err error) (Reply, error) {
	if in.unknown {
		reply, found, lookErr := s.look(ctx, in.req)
		if found || errors.Is(lookErr, ErrKeyReused) {
			return s.settled(in, reply), lookErr
		}
		return Reply{}, fmt.Errorf("%w: %v", locking.ErrOutcomeUnknown, err)
	}
	return Reply{}, exhausted(err)
}

// exhausted makes of the last attempt's error what it means outside: did nothing, come again.
func exhausted(err error) error {
	for _, again := range []error{errConflict, errGuard, errKeyTaken, errLostConn} {
		if errors.Is(err, again) {
			return fmt.Errorf("%w: gave up after %d attempts: %v", locking.ErrBusy, attemptsMax, err)
		}
	}
	return err
}

// connection waits for a free one no longer than for a lock.
func (s *Service) connection(ctx context.Context) (*pgxpool.Conn, error) {
	bounded, cancel := context.WithTimeout(ctx, LockTimeout)
	defer cancel()
	conn, err := s.pool.Acquire(bounded)
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case bounded.Err() != nil:
		return nil, fmt.Errorf("%w: no connection to PostgreSQL is free", locking.ErrBusy)
	default:
		return nil, fmt.Errorf("%w: %w", errLostConn, err)
	}
}

// pause before attempt number try: exponential, with full jitter, so that those
// who collided do not collide again.
func pause(ctx context.Context, try int) error {
	if try == 0 {
		return nil
	}
	ceiling := min(pauseBase<<min(try-1, 16), pauseMax)
	timer := time.NewTimer(rand.N(ceiling))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
