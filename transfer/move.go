package transfer

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// HoldMax is the longest time for which money can be held.
const HoldMax = 30 * 24 * time.Hour

// A payer who is short gets expired money back dueMax holds at a time, at most
// dueRounds times in one request. After that the request is busy, and the next one
// with its key goes on where it ended.
const (
	dueMax    = 20
	dueRounds = 50
)

// Transfer moves money at once, or nothing.
//
// A nil error means that the Reply is stored under the request's key: the
// transfer, or a refusal. While the key is kept (KeysKept) every repetition gets the
// same bytes. An error was not stored.
func (s *Service) Transfer(ctx context.Context, req Request, m Move) (Reply, error) {
	return s.move(ctx, req, m, 0)
}

// Reserve holds money for expiresIn: it stays the payer's, and cannot be spent
// until Post moves it, Void frees it, or its time is over.
func (s *Service) Reserve(ctx context.Context, req Request, m Move, expiresIn time.Duration) (Reply, error) {
	if expiresIn < time.Millisecond || expiresIn > HoldMax {
		return Reply{}, fmt.Errorf("%w: a hold lasts 1 ms to %v", ErrInvalid, HoldMax)
	}
	return s.move(ctx, req, m, expiresIn)
}

// move is a new transfer; expiresIn 0: at once.
func (s *Service) move(ctx context.Context, req Request, m Move, expiresIn time.Duration) (Reply, error) {
	if err := checkRequest(req); err != nil {
		return Reply{}, err
	}
	if err := m.check(); err != nil {
		return Reply{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Reply{}, err
	}
	j := &job{req: req, strategy: s.strategy, id: id, from: m.From, to: m.To}
	j.decide = func(ctx context.Context, t *tx, from, to *account) (Reply, error) {
		if err := m.fits(from, to); err != nil {
			return Reply{}, err
		}
		tr := m.transfer(j, later(from, to).UTC(), expiresIn)
		if available := from.balance - from.held; available < m.Amount {
			return Reply{}, t.short(ctx, from, &refusal{&InsufficientFundsError{j.from, m.Amount, available}, tr}, m.Amount-available)
		}
		if expiresIn > 0 {
			from.held += m.Amount
			return s.record(ctx, t, j, tr, from)
		}
		from.balance -= m.Amount
		to.balance += m.Amount
		return s.record(ctx, t, j, tr, from, to)
	}
	return s.request(ctx, j)
}

// transfer is what will have happened.
func (m Move) transfer(j *job, now time.Time, expiresIn time.Duration) Transfer {
	tr := Transfer{
		ID: j.id, Client: j.req.Client, From: m.From, To: m.To,
		Amount: m.Amount, Currency: m.Currency, CreatedAt: now,
	}
	if expiresIn > 0 {
		end := now.Add(expiresIn.Truncate(time.Microsecond)) // the database's precision
		tr.State, tr.ExpiresAt = Reserved, &end
	} else {
		tr.State, tr.Settled, tr.EndedAt = Posted, m.Amount, &now
	}
	return tr
}

// short is what becomes of a payer who has too little: the refusal, unless enough
// of the missing money is held by what has expired. That is not simply counted as
// available: money comes back only when its hold is committed as expired,
// under the rows of that hold, so that a Post can never find it spent.
func (t *tx) short(ctx context.Context, from *account, no *refusal, missing int64) error {
	if from.held < missing {
		return no
	}
	var (
		due dueError
		sum int64
	)
	t.batch.Queue(selectTransfer+`
		WHERE from_id = $1 AND state = 'reserved' AND expires_at <= clock_timestamp()
		ORDER BY expires_at
		LIMIT $2`, from.id, dueMax).Query(func(rows pgx.Rows) (err error) {
		t.answered++
		due.holds, err = pgx.CollectRows(rows, toTransfer)
		return err
	})
	t.batch.Queue(`
		SELECT COALESCE(sum(amount), 0)::bigint
		FROM transfers
		WHERE from_id = $1 AND state = 'reserved' AND expires_at <= clock_timestamp()`, from.id).QueryRow(func(row pgx.Row) error {
		t.answered++
		return row.Scan(&sum)
	})
	if err := t.flush(ctx); err != nil {
		return err
	}
	if len(due.holds) == 0 || sum < missing {
		return no
	}
	return &due
}
