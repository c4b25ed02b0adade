// SPDX-License-Identifier: MIT

package wallet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/locking"
)

// body is the callback of a transaction. It reads, decides, writes, and returns the reply that
// it stored. It may run several times. Its ctx carries the session: a statement with another
// ctx runs outside of the transaction.
type body func(ctx context.Context) (Reply, error)

// transact runs one operation until it has an answer. WithTransaction repeats what certainly did not
// happen. transact repeats what may have happened: the next callback finds the operation
// under its key, or holds the lock and does not find it.
//
// All rounds use one session. A transaction whose commit was lost stays open at the server and
// keeps its locks. The next transaction of the same session ends it; one of another session
// would get WriteConflict from it for a minute.
func (s *Service) transact(ctx context.Context, o *operation, do body) (Reply, error) {
	session, err := s.client.StartSession()
	if err != nil {
		return Reply{}, fmt.Errorf("wallet: session: %w", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	defer o.passTurn()
	for round := range roundsMax {
		if err = pause(ctx, round); err != nil {
			break
		}
		if err = s.turn(ctx, o); err != nil {
			break
		}
		var reply Reply
		if reply, err = s.locked(ctx, session, o, do); err == nil {
			return reply, nil
		}
		if !s.shouldRetry(o, err) {
			break
		}
	}
	if o.unknown {
		s.abandon(ctx, session)
	}
	return Reply{}, toPublic(ctx, err)
}

// locked repeats round until the operation has the lock of its wallets. While another process has one
// of them, MongoDB refuses the lock at once, and nothing is done: the operation retries after a
// short pause of its own. The driver's pause grows to half a second, in which the wallet is
// free many times.
func (s *Service) locked(ctx context.Context, session *mongo.Session, o *operation, do body) (Reply, error) {
	for begin := time.Now(); ; {
		reply, err := s.round(ctx, session, o, do)
		if !errors.Is(err, errHeld) || !s.queued() {
			return reply, err
		}
		s.queues.Seen(o.ids()...)
		wait := heldPause
		if time.Since(begin) > runShared+gap { // it missed a gap: it retries more often than heads that have just had the wallet
			wait /= 3
		}
		if err := sleep(ctx, wait/2+rand.N(wait/2)); err != nil {
			return Reply{}, err
		}
	}
}

// round is one WithTransaction. WithTransaction returns the callback's reply together with an
// error only if the commit failed: round then returns an ambiguousError.
func (s *Service) round(ctx context.Context, session *mongo.Session, o *operation, do body) (Reply, error) {
	if o.unknown {
		forget(ctx, session)
	}
	ended := false // the callback succeeded, and the commit followed
	reply, err := session.WithTransaction(undated{ctx}, func(ctx context.Context) (any, error) {
		if ended {
			s.count(Transient, s.method.Name) // after a commit the driver runs the callback again for this label only
		}
		reply, err := s.attempt(ctx, o, do)
		if isVerdict(err) {
			// The data that the refusal depends on may still be rolled back. So this transaction
			// commits, and the reply is sent after the commit is majority-acknowledged.
			ended = true
			return err, nil
		}
		if ended = err == nil; !ended {
			s.countCause(err)
			if s.queued() && errors.Is(err, errHeld) {
				o.attempt--
				return nil, errHeld // without the label: the driver would pause longer than the wallet is held
			}
			return nil, err
		}
		return reply, nil // as a return value: the reply of an aborted attempt is dropped with it
	}, s.durably())
	if err == nil && s.queued() {
		err = s.settle(ctx, session, o)
		s.countCause(err)
	}
	switch {
	case err == nil:
		_ = s.step(ctx, AfterCommit)
		if refusal, is := reply.(error); is {
			return Reply{}, refusal
		}
		return reply.(Reply), nil
	case reply != nil:
		return Reply{}, &ambiguousError{err}
	default:
		return Reply{}, err
	}
}

// durably returns the options of every transaction: all its statements read one snapshot, and
// its commit is acknowledged when a majority has it.
//
// An operation that has its turn in a queue commits twice. MongoDB unlocks a wallet when the primary
// has committed, and waits for the majority after that. So the operation passes its turn on after
// the first commit, which the primary acknowledges, and sends the commit again. The driver
// sends every repetition of a commit with write concern majority. The client gets its answer
// when that is acknowledged. The next operation in the queue may read what could still be rolled
// back. But its own commit is later in the oplog: a majority that has it also has ours.
func (s *Service) durably() *options.TransactionOptionsBuilder {
	o := options.Transaction().SetReadConcern(snapshot).SetReadPreference(primary)
	if s.queued() {
		return o.SetWriteConcern(atPrimary)
	}
	return o.SetWriteConcern(writes)
}

// attempt is one run of the callback.
func (s *Service) attempt(ctx context.Context, o *operation, do body) (Reply, error) {
	if o.attempt++; o.attempt > 1 {
		s.count(Retried, s.method.Name)
	}
	if o.attempt > attemptsMax {
		return Reply{}, errAttempts // without a label: WithTransaction returns it
	}
	if err := s.step(ctx, AfterBegin); err != nil {
		return Reply{}, err
	}
	reply, err := do(ctx)
	if err != nil && !isVerdict(err) {
		return Reply{}, err
	}
	return reply, cmp.Or(s.step(ctx, BeforeCommit), err)
}

// shouldRetry reports whether another round may have another result, and counts ambiguous commits.
func (s *Service) shouldRetry(o *operation, err error) bool {
	switch ambiguous := new(ambiguousError); {
	case errors.As(err, &ambiguous):
		o.unknown = true
		s.count(Ambiguous, s.method.Name)
		return true
	case errors.Is(err, errKeyTaken):
		return true
	case o.unknown:
		// A fail-over takes longer than WithTransaction retries, and ErrBusy would be wrong: the
		// earlier commit may have happened.
		return hasLabel(err, "TransientTransactionError") || isUnavailable(err) || errors.Is(err, locking.ErrBusy)
	default:
		return false
	}
}

// The pauses between rounds, and between commits. Between the attempts of one round the driver pauses.
const (
	pauseBase = 5 * time.Millisecond
	pauseMax  = 250 * time.Millisecond
)

// pause waits before try number n. The pauses are exponential with full jitter, so that
// requests that collided do not collide again.
func pause(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	return sleep(ctx, rand.N(min(pauseBase<<min(n, 10), pauseMax)))
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
