// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// undated hides the deadline of a ctx, not its cancellation. If the driver sees a deadline, it
// ignores ClientTimeout, and waits for a silent server until the deadline.
type undated struct{ context.Context }

func (undated) Deadline() (at time.Time, ok bool) { return }

// forget resets the driver's state after a commit without a result. For the driver, a commit
// that timed out is still under way, and each statement of the next transaction would begin
// that transaction anew. An abort ends that state, and cannot undo a commit. If no
// transaction runs, forget starts one only to abort it; nothing is sent to the server.
func forget(ctx context.Context, session *mongo.Session) {
	if !session.TransactionRunning() {
		_ = session.StartTransaction()
	}
	_ = session.AbortTransaction(context.WithoutCancel(ctx))
}

// settle passes the operation's turn on, and repeats the commit until a majority has it, or until
// the server reports that the transaction is gone: then it was rolled back with its primary.
// Nothing else may be done in the session before that. For the driver, a commit that timed
// out is still under way, and it would begin each further transaction twice.
//
// Each of these commits takes a connection until the majority answers. If majorityMax of
// them wait, the operation keeps its turn until one ends, so that its wallet adds no further waiter.
func (s *Service) settle(ctx context.Context, session *mongo.Session, o *operation) error {
	select {
	case s.queues.majority <- struct{}{}:
		defer func() { <-s.queues.majority }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	o.passTurn()
	for n := 1; ; n++ {
		err := session.CommitTransaction(context.WithoutCancel(ctx))
		if err == nil || hasLabel(err, "TransientTransactionError") || pause(ctx, n) != nil {
			return err
		}
	}
}

// abandon ends the transaction of an operation that returns with an unknown commit. If the commit did
// not reach the server, the transaction is open there and holds its locks, and the driver
// does not abort it, because it takes it for committed. A server that does not answer soon is
// taken for dead, and its transactions with it.
func (s *Service) abandon(ctx context.Context, session *mongo.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), heartbeat)
	defer cancel()
	_ = s.client.Database("admin").RunCommand(ctx, bson.D{{Key: "killSessions", Value: bson.A{session.ID()}}}).Err()
}
