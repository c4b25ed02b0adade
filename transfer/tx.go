package transfer

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
)

// tx is a transaction in as few round trips as its decisions need. Statements
// are queued, and sent when an answer is waited for:
//
//	1  BEGIN; guard, lock and read both rows; change the hold    on the caller's ctx: cancelling it changes nothing
//	2  key, transfer, two updates, two entries; COMMIT           detached: neither client nor lease can cut it in half
//
// A row is locked from the first answer to the second, so that a hot account is
// passed on after one round trip and one fsync, not after nine.
type tx struct {
	conn     *pgxpool.Conn
	batch    *pgx.Batch
	answered int // statements of the batch on its way that were answered
	keyAt    int // which of them inserts the idempotency key; -1: none
	accounts []account
	hold     hold
	fence    locking.Fence // under which this writes; 0: the strategy has none
	source   string        // … and who gave it
	guards   bool          // a guard was queued: a missing row may be one that refused
	hook     func(context.Context, Step)
}

// account is a row as the transaction sees it.
type account struct {
	id       uuid.UUID
	owner    uuid.UUID
	currency string
	balance  int64
	held     int64
	version  int64
	at       time.Time // the server's clock
}

// exec queues a statement whose rows do not matter.
func (t *tx) exec(sql string, args ...any) {
	t.batch.Queue(sql, args...).Exec(func(pgconn.CommandTag) error {
		t.answered++
		return nil
	})
}

// read queues a statement that returns id, owner, currency, balance, held, version, clock_timestamp().
func (t *tx) read(sql string, args ...any) {
	t.batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		t.answered++
		var a account
		_, err := pgx.ForEachRow(rows, []any{&a.id, &a.owner, &a.currency, &a.balance, &a.held, &a.version, &a.at}, func() error {
			t.accounts = append(t.accounts, a)
			return nil
		})
		return err
	})
}

// begin queues the start of the transaction. The step behind it is past the
// last look at ctx: what is late from here on, only the database can stop.
func (t *tx) begin(ctx context.Context, sql string) error {
	t.exec(sql)
	if t.hook == nil {
		return nil
	}
	if err := t.flush(ctx); err != nil {
		return err
	}
	t.hook(ctx, AfterBegin)
	return nil
}

// guarded sends what is queued: both accounts are read, and locked where the strategy locks.
func (t *tx) guarded(ctx context.Context) error {
	t.accounts = t.accounts[:0]
	if err := t.flush(ctx); err != nil {
		return err
	}
	return t.step(ctx, AfterGuard)
}

// step is where a test may stop, slow or kill us. What is queued is sent first,
// so that the fault finds the transaction where the step's name says.
func (t *tx) step(ctx context.Context, step Step) error {
	if t.hook == nil {
		return nil
	}
	if err := t.flush(ctx); err != nil {
		return err
	}
	t.hook(ctx, step)
	return context.Cause(ctx)
}

// flush sends the queued statements and reads all their answers: one round trip.
func (t *tx) flush(ctx context.Context) error {
	if t.batch.Len() == 0 {
		return nil
	}
	b := t.batch
	t.batch, t.answered = &pgx.Batch{}, 0
	ctx, cancel := answerIn(ctx)
	defer cancel()
	if err := t.conn.SendBatch(ctx, b).Close(); err != nil {
		return t.explain(ctx, err)
	}
	t.keyAt = -1
	return nil
}

// commit sends the rest and COMMIT. From here on nobody may cancel: a cancelled
// ctx would close the connection, not undo what the server already has.
func (t *tx) commit(ctx context.Context) error {
	if err := t.step(ctx, BeforeCommit); err != nil {
		return err
	}
	// The last moment at which leaving is free: the client left, or the lease is lost.
	detached, cancel, err := locking.Detach(ctx, CommitTimeout)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	defer cancel()

	var tag string
	t.batch.Queue("commit").Exec(func(ct pgconn.CommandTag) error {
		tag = ct.String()
		return nil
	})
	err = t.flush(detached)
	switch {
	case tag == "COMMIT": // answered: whatever else went wrong came later
		if t.hook != nil {
			t.hook(ctx, AfterCommit)
		}
		return nil
	case tag == "ROLLBACK": // COMMIT of a failed transaction is no error, and no commit
		return errConflict
	case isRefusal(err):
		return err
	default:
		return &ambiguousError{err}
	}
}

// rollback gives the connection back clean. If that cannot be had soon, the
// connection is dropped, and the server rolls back for us.
func (t *tx) rollback(ctx context.Context) {
	if t.conn.Conn().IsClosed() || t.conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = t.conn.Exec(ctx, "rollback") // Release destroys a connection that is still inside a transaction
}

// isRefusal says that nothing of the last batch was committed: it was not sent,
// or the server answered with an ERROR. A FATAL is no such answer, it may follow a COMMIT.
func isRefusal(err error) bool {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.SeverityUnlocalized == "ERROR"
	}
	return pgconn.SafeToRetry(err)
}
