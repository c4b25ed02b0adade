package wallet

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// undated hides the deadline of a ctx, not its end. Where the driver sees a
// deadline, it drops the client's time-out, and waits for a silent server until then.
type undated struct{ context.Context }

func (undated) Deadline() (at time.Time, ok bool) { return }

// forget resets the driver's state after a commit without result. For the driver, a
// commit that timed out is still under way, and each statement of the next transaction
// would begin it anew. An abort ends that state, and cannot undo a commit. Where there
// is nothing to abort, a transaction is begun for it, of which nothing is sent.
func forget(ctx context.Context, session *mongo.Session) {
	if !session.TransactionRunning() {
		_ = session.StartTransaction()
	}
	_ = session.AbortTransaction(context.WithoutCancel(ctx))
}

// settle gives the job's turn on, and repeats the commit until a majority has it, or
// the server says that the transaction is gone: then it was rolled back with its
// primary. Nothing else is done in the session before that: for the driver, a commit
// that timed out is still under way, and it would begin each next transaction twice.
//
// Each of these commits takes a connection until the majority answers. When
// majorityMax of them wait, the job keeps its turn until there is a place, so that
// its wallet adds no more of them.
func (s *Service) settle(ctx context.Context, session *mongo.Session, j *job) error {
	select {
	case s.queues.majority <- struct{}{}:
		defer func() { <-s.queues.majority }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	j.giveTurn()
	for n := 1; ; n++ {
		err := session.CommitTransaction(context.WithoutCancel(ctx))
		if err == nil || hasLabel(err, "TransientTransactionError") || pause(ctx, n) != nil {
			return err
		}
	}
}

// abandon ends the transaction of a job that ends with an unknown commit. If the
// commit did not reach the server, the transaction is open there with its locks, and
// the driver, for which it is committed, does not abort it. A server that does not
// answer soon is dead, and its transactions with it.
func (s *Service) abandon(ctx context.Context, session *mongo.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), heartbeat)
	defer cancel()
	_ = s.client.Database("admin").RunCommand(ctx, bson.D{{Key: "killSessions", Value: bson.A{session.ID()}}}).Err()
}
