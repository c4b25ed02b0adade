package wallet

import (
	"context"
	"time"

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

// settle commits what the primary has committed, until a majority has it, or the
// server says that it is gone: then it was rolled back with its primary. Nothing
// else is done in the session before that: for the driver, one whose commit timed
// out is committing still, and it would begin each next transaction twice.
func settle(ctx context.Context, session *mongo.Session) error {
	for n := 1; ; n++ {
		err := session.CommitTransaction(context.WithoutCancel(ctx))
		if err == nil || hasLabel(err, "TransientTransactionError") || pause(ctx, n) != nil {
			return err
		}
	}
}
