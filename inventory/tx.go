package inventory

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
)

// tx is a transaction in as few round trips as its decisions need. Statements
// are queued, and sent when an answer is waited for:
//
//	1  BEGIN; lock and read the rows          on the caller's ctx: cancelling it changes nothing
//	2  write stock, key, order …; COMMIT      detached: neither client nor lease can cut it in half
//
// A row is locked from the first answer to the second, so that a hot row is
// passed on after one round trip and one fsync, not after eight.
type tx struct {
	conn     *pgxpool.Conn
	batch    *pgx.Batch
	answered int // statements of the batch on its way that were answered
	affected int // rows that they wrote
	keyAt    int // which of them inserts the idempotency key; -1: none
	items    []item
	taken    bool // a lock that we only tried for is someone else's
	hook     func(context.Context, Step)
}

// item is a product as the transaction sees it.
type item struct {
	sku      string
	price    int64
	currency string
	stock    int64
	version  int64
	at       time.Time // now(): the transaction's time, the same in all its statements
}

// exec queues a statement whose rows do not matter.
func (t *tx) exec(sql string, args ...any) {
	t.batch.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error {
		t.answered++
		t.affected += int(tag.RowsAffected())
		return nil
	})
}

// query queues a statement that returns sku, price, currency, stock, version, now().
func (t *tx) query(sql string, args ...any) {
	t.batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		t.answered++
		var i item
		_, err := pgx.ForEachRow(rows, []any{&i.sku, &i.price, &i.currency, &i.stock, &i.version, &i.at}, func() error {
			t.items = append(t.items, i)
			return nil
		})
		return err
	})
}

// guard sends what is queued and returns the items that it read.
func (t *tx) guard(ctx context.Context) ([]item, error) {
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	return t.items, t.step(ctx, AfterGuard)
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
	t.batch, t.answered, t.affected = &pgx.Batch{}, 0, 0
	if err := t.conn.SendBatch(ctx, b).Close(); err != nil {
		return t.explain(ctx, err)
	}
	t.keyAt = -1
	if t.taken {
		return errTaken
	}
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
