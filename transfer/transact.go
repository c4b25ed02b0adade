package transfer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
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

// work reads, decides, queues what is to be written, and returns the reply that it stored.
type work func(ctx context.Context, t *tx) (Reply, error)

// transact runs one job to its answer. A lost race runs the whole transaction
// again, including the reading that decides what is written; so does a COMMIT
// without answer: its successor waits for the rows of the first, inserts the
// same key, and either conflicts with it or makes sure that it never happens.
func (s *Service) transact(ctx context.Context, j *job, do work) (Reply, error) {
	var err error
	for try := 0; try < attemptsMax; try++ {
		if pauseErr := pause(ctx, try); pauseErr != nil {
			return s.giveUp(ctx, j, pauseErr)
		}
		var reply Reply
		if reply, err = s.attempt(ctx, j, do); err == nil {
			return s.settled(j, reply), nil
		}
		if errors.Is(err, errKeyTaken) {
			reply, found, lookErr := s.look(ctx, j.req, uuid.Nil)
			if found || errors.Is(lookErr, ErrKeyReused) {
				return s.settled(j, reply), lookErr
			}
		}
		if errors.Is(err, errNotDue) {
			return s.settled(j, reply), err
		}
		if !s.again(j, err) {
			break
		}
	}
	return s.giveUp(ctx, j, err)
}

// attempt is one transaction.
func (s *Service) attempt(ctx context.Context, j *job, do work) (Reply, error) {
	conn, err := s.connection(ctx)
	if err != nil {
		return Reply{}, err
	}
	defer conn.Release()
	t := &tx{conn: conn, batch: &pgx.Batch{}, keyAt: -1}
	if s.failpoint != nil {
		t.hook = func(ctx context.Context, step Step) { s.failpoint(ctx, step, j.strategy) }
	}
	defer t.rollback(ctx)

	if err := t.step(ctx, AfterAcquire); err != nil {
		return Reply{}, err
	}
	reply, err := do(ctx, t)
	var no *refusal
	if errors.As(err, &no) {
		reply, err = s.refuse(ctx, t, j, no)
	}
	if err == nil {
		err = t.commit(ctx)
	}
	if err != nil {
		return Reply{}, s.explainMiss(ctx, t, j, err)
	}
	return reply, nil
}

// refuse stores a refusal. It changes nothing but the key, so that the row
// locks are given back first: who wants of an empty account does not queue for an fsync.
func (s *Service) refuse(ctx context.Context, t *tx, j *job, no *refusal) (Reply, error) {
	reply, err := s.encode(no.transfer, no.why)
	if err != nil {
		return Reply{}, fmt.Errorf("transfer: encode refusal: %w", err)
	}
	t.batch = &pgx.Batch{}
	if t.conn.Conn().PgConn().TxStatus() != 'I' {
		t.exec("rollback")
	}
	t.exec("begin")
	return reply, t.storeReply(ctx, j, reply)
}

// again says whether another attempt may end differently, and counts why.
func (s *Service) again(j *job, err error) bool {
	var ambiguous *ambiguousError
	switch {
	case errors.As(err, &ambiguous):
		j.unknown = true
		s.count(Ambiguous, j.strategy)
	case errors.Is(err, errGuard):
		s.count(GuardTripped, j.strategy)
	case errors.Is(err, errConflict), errors.Is(err, errKeyTaken), errors.Is(err, errLostConn):
		s.count(Retried, j.strategy)
	default:
		return false
	}
	return true
}

// settled is the end of a request whose outcome is known.
func (s *Service) settled(j *job, reply Reply) Reply {
	if j.unknown {
		j.unknown = false
		s.count(Resolved, j.strategy)
	}
	if j.expires {
		s.count(Swept, j.strategy)
	}
	return reply
}

// giveUp is the end of a request without an answer. Never guess: after a COMMIT
// without answer, "busy" or "stale" would claim that nothing happened.
func (s *Service) giveUp(ctx context.Context, j *job, err error) (Reply, error) {
	if !j.unknown {
		return Reply{}, exhausted(err)
	}
	if due := new(dueError); errors.As(err, &due) {
		return Reply{}, err // the next round decides it
	}
	reply, found, lookErr := s.look(ctx, j.req, uuid.Nil)
	if found || errors.Is(lookErr, ErrKeyReused) {
		return s.settled(j, reply), lookErr
	}
	return Reply{}, fmt.Errorf("%w: %v", locking.ErrOutcomeUnknown, err)
}

// exhausted makes of the last attempt's error what it means outside: did nothing, come again.
func exhausted(err error) error {
	for _, again := range []error{errConflict, errGuard, errKeyTaken, errLostConn} {
		if errors.Is(err, again) {
			return fmt.Errorf("%w: gave up after %d attempts: %w", locking.ErrBusy, attemptsMax, err)
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
		return nil, errNoConn
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
