// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"shop/locking"
)

// errQueueFull matches locking.ErrBusy.
var errQueueFull = locking.Like(locking.ErrBusy, errors.New("wallet: too many requests wait for this wallet"))

// queues has the line of this process for each wallet that a request works on.
// Correctness does not depend on it. It spares MongoDB the requests that would lose: MongoDB
// cannot let a writer wait, only abort it.
//
// The first requests of several processes contend for a wallet. A process leaves it alone for a gap after each turn, in which
// each first request of the other processes retries at least once.
type queues struct {
	locking.Line[uuid.UUID]
	majority chan struct{} // has one place for each request that waits for the majority after its turn
}

func newQueues(bound int) *queues {
	return &queues{
		Line:     locking.Line[uuid.UUID]{Max: bound, Share: (bound + 3) / 4, Turn: runShared, Gap: gap},
		majority: make(chan struct{}, majorityMax),
	}
}

// turn waits until the operation is the first in the queues of all its wallets, if its strategy has
// queues. An operation that has its turn keeps it. The turn of a batch is its lease.
func (s *Service) turn(ctx context.Context, o *operation) (err error) {
	if o.leave != nil || o.batch {
		return nil
	}
	leave := func() {}
	if s.queued() {
		leave, err = s.queues.enter(ctx, o)
		if errors.Is(err, errQueueFull) {
			s.count(QueueFull, s.method.Name)
		}
		if err != nil {
			return err
		}
	}
	o.leave = leave
	return s.step(ctx, AfterAcquire)
}

func (s *Service) queued() bool { return s.queues != nil && s.method.queued }

// passTurn passes the operation's turn on, if it has one.
func (o *operation) passTurn() {
	if o.leave != nil {
		o.leave()
		o.leave = nil
	}
}

// enter waits for the turn at all wallets of the operation. leave passes it on. The bounds of the
// queue apply to new requests only: one whose commit is unknown was in the queue before, and
// has to be resolved; a batch was bounded before.
func (q *queues) enter(ctx context.Context, o *operation) (leave func(), err error) {
	var client any
	if !o.unknown && !o.batch {
		client = o.req.Client
	}
	place, err := q.Enter(ctx, client, o.ids()...)
	if errors.Is(err, locking.ErrFull) {
		err = errQueueFull
	}
	if err != nil {
		return nil, err
	}
	return place.Leave, nil
}
