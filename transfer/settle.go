package transfer

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// change is what a job does to a hold: once, and only from reserved. The diagram
// is in the package comment.
type change struct {
	to      State
	settled int64
}

// hold is what a change found.
type hold struct {
	won bool // it was this one that ended it
	Transfer
}

// Post moves held money: amount of it, 0 for all. What is left over is free again.
// A hold whose time is over gets ErrExpired as its stored answer, one that was
// settled before ErrSettled, and somebody else's is ErrNotFound.
func (s *Service) Post(ctx context.Context, req Request, id uuid.UUID, amount int64) (Reply, error) {
	if amount < 0 {
		return Reply{}, fmt.Errorf("%w: amount %d", ErrInvalid, amount)
	}
	return s.settle(ctx, req, id, Posted, amount)
}

// Void frees held money. Its refusals are those of Post.
func (s *Service) Void(ctx context.Context, req Request, id uuid.UUID) (Reply, error) {
	return s.settle(ctx, req, id, Voided, 0)
}

func (s *Service) settle(ctx context.Context, req Request, id uuid.UUID, to State, amount int64) (Reply, error) {
	if err := checkRequest(req); err != nil {
		return Reply{}, err
	}
	if reply, found, err := s.replay(ctx, req, uuid.Nil); found || err != nil {
		return reply, err
	}
	// Whose it is, which accounts it is about, and how much is held, never changes: no lock is needed
	// to know it, and a stranger waits in no queue.
	var tr Transfer
	err := patiently(ctx, func() (err error) {
		tr, err = s.find(ctx, req.Client, id)
		return err
	})
	if err != nil {
		return Reply{}, err
	}
	if amount > tr.Amount {
		return Reply{}, fmt.Errorf("%w: %d of a hold of %d", ErrInvalid, amount, tr.Amount)
	}
	j := &job{req: req, strategy: s.strategy, id: id, from: tr.From, to: tr.To, change: &change{to: to}}
	if to == Posted {
		j.change.settled = amount
		if amount == 0 {
			j.change.settled = tr.Amount
		}
	}
	j.decide = func(ctx context.Context, t *tx, from, to *account) (Reply, error) {
		return s.settleNow(ctx, t, j, from, to)
	}
	return s.run(ctx, j)
}

// settleNow is the rest of a Post or a Void, after the change was tried.
func (s *Service) settleNow(ctx context.Context, t *tx, j *job, from, to *account) (Reply, error) {
	tr := t.hold.Transfer
	j.expires = false
	switch {
	case t.hold.won && to.balance > math.MaxInt64-tr.Settled:
		return Reply{}, fmt.Errorf("%w: more than account %s can hold", ErrInvalid, to.id)
	case t.hold.won:
		from.held -= tr.Amount
		from.balance -= tr.Settled
		to.balance += tr.Settled
		if tr.Settled == 0 {
			return s.record(ctx, t, j, tr, from)
		}
		return s.record(ctx, t, j, tr, from, to)
	case tr.State == Reserved: // and past its time: whoever is told so finds it so
		return s.expireNow(ctx, t, j, from)
	case tr.State == Expired:
		return Reply{}, &refusal{ErrExpired, tr}
	default:
		return Reply{}, &refusal{fmt.Errorf("%w: %s", ErrSettled, tr.State), tr}
	}
}

// expireNow ends a hold past its time together with the refusal that says so.
func (s *Service) expireNow(ctx context.Context, t *tx, j *job, from *account) (Reply, error) {
	t.change(j.id, change{to: Expired})
	if err := t.flush(ctx); err != nil {
		return Reply{}, err
	}
	if !t.hold.won { // somebody else was faster, which he is only where accounts are not locked
		return Reply{}, errConflict
	}
	j.expires = true
	from.held -= t.hold.Amount
	reply, err := s.encode(t.hold.Transfer, ErrExpired)
	if err != nil {
		return Reply{}, fmt.Errorf("transfer: encode refusal: %w", err)
	}
	if err := t.storeReply(ctx, j, reply); err != nil {
		return Reply{}, err
	}
	t.save(from)
	return reply, nil
}

// change queues the end of a hold, and a look at what it is then. It stands
// behind the locks of both accounts, so that clock_timestamp() is read after all
// waiting: now() is when the transaction began, and a Post that waited past the
// end of the hold would still find it in time. Of Post, Void and Sweep
// exactly one finds it reserved.
func (t *tx) change(id uuid.UUID, c change) {
	condition := `expires_at > clock_timestamp()`
	if c.to == Expired {
		condition = `expires_at <= clock_timestamp()`
	}
	t.hold = hold{}
	t.batch.Queue(`
		UPDATE transfers
		SET state = $2, settled = $3, ended_at = clock_timestamp()
		WHERE id = $1
		AND state = 'reserved'
		AND `+condition, id, c.to, c.settled).Query(func(rows pgx.Rows) error {
		t.answered++
		rows.Close()
		t.hold.won = rows.CommandTag().RowsAffected() == 1
		return rows.Err()
	})
	t.batch.Queue(selectTransfer+` WHERE id = $1`, id).Query(func(rows pgx.Rows) (err error) {
		t.answered++
		t.hold.Transfer, err = pgx.CollectExactlyOneRow(rows, toTransfer)
		return err
	})
}

// expire gives back what one hold reserved, if its time is over.
func (s *Service) expire(ctx context.Context, tr Transfer) (expired bool, err error) {
	j := &job{strategy: s.strategy, id: tr.ID, from: tr.From, to: tr.To, change: &change{to: Expired}}
	j.decide = func(_ context.Context, t *tx, from, _ *account) (Reply, error) {
		if j.expires = t.hold.won; !j.expires {
			return Reply{}, errNotDue
		}
		from.held -= t.hold.Amount
		t.save(from)
		return Reply{}, nil
	}
	if _, err = s.run(ctx, j); errors.Is(err, errNotDue) {
		return false, nil
	}
	return err == nil, err
}
