package wallet

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// undated hides when a ctx ends, not that it does. Where the driver sees a
// deadline, it drops the client's time-out, and waits for a silent server until then.
type undated struct{ context.Context }

func (undated) Deadline() (at time.Time, ok bool) { return }

// forget ends what the driver remembers of a commit without result. One that timed
// out is committing still, for the driver, and it would begin the next transaction
// with each of its statements; an abort ends that, and what was committed cannot be
// aborted. Where there is nothing to abort, a transaction is begun for it, of which
// nothing is sent.
func forget(ctx context.Context, session *mongo.Session) {
	if !session.TransactionRunning() {
		_ = session.StartTransaction()
	}
	_ = session.AbortTransaction(context.WithoutCancel(ctx))
}

// settle gives the job's turn on, and commits what the primary has committed,
// until a majority has it, or the server says that it is gone: then it was rolled
// back with its primary. Nothing else is done in the session before that: for the
// driver, a commit that timed out is committing still, and it would begin each next
// transaction twice.
//
// Each of these commits takes a connection until the majority answers. When
// majorityMax of them wait, the job waits for a place with its turn, so that its
// wallet brings no more of them.
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
