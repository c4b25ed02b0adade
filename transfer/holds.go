// SPDX-License-Identifier: MIT

package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/locking/idempotency/pgtx"
)

// HoldMax is the longest time for which money can be held.
const HoldMax = 30 * 24 * time.Hour

// change is what an operation does to a reserved hold. The package comment has the diagram.
type change struct {
	to      State
	settled int64
}

// Reserve holds money for expiresIn. It stays in the payer's balance, and cannot be spent
// until Post moves it, Void frees it, or the hold expires.
func (s *Service) Reserve(ctx context.Context, req Request, m Move, expiresIn time.Duration) (Reply, error) {
	if expiresIn < time.Millisecond || expiresIn > HoldMax {
		return Reply{}, fmt.Errorf("%w: a hold lasts 1 ms to %v", ErrInvalid, HoldMax)
	}
	return s.move(ctx, req, m, expiresIn)
}

// Post moves amount of the held money, or all of it if amount is 0. The rest is available
// again. If the hold has expired, the stored reply is ErrExpired; if it was settled before,
// ErrSettled. For another client's hold, Post returns ErrNotFound.
func (s *Service) Post(ctx context.Context, req Request, id uuid.UUID, amount int64) (Reply, error) {
	if amount < 0 {
		return Reply{}, fmt.Errorf("%w: amount %d", ErrInvalid, amount)
	}
	return s.settle(ctx, req, id, Posted, amount)
}

// Void frees the held money. It is refused for the same reasons as Post.
func (s *Service) Void(ctx context.Context, req Request, id uuid.UUID) (Reply, error) {
	return s.settle(ctx, req, id, Voided, 0)
}

func (s *Service) settle(ctx context.Context, req Request, id uuid.UUID, to State, amount int64) (Reply, error) {
	if err := req.Check(); err != nil {
		return Reply{}, err
	}
	if reply, found, err := s.db.Lookup(ctx, req); found || err != nil {
		return reply, err
	}
	// The client, the accounts and the amount of a hold never change. So they are read
	// without a lock, and a request for another client's hold waits in no queue.
	tr, err := s.Find(ctx, req.Client, id)
	if err != nil {
		return Reply{}, err
	}
	if amount > tr.Amount {
		return Reply{}, fmt.Errorf("%w: %d of a hold of %d", ErrInvalid, amount, tr.Amount)
	}
	c := change{to: to}
	if to == Posted {
		c.settled = cmp.Or(amount, tr.Amount)
	}
	o := s.onHold(req, tr, c)
	o.decide = settleNow
	return s.run(ctx, o)
}

func (s *Service) onHold(req Request, tr Transfer, c change) *operation {
	return &operation{Op: pgtx.Op{Request: req, Label: s.cfg.Strategy}, id: tr.ID, from: tr.From, to: tr.To, change: &c}
}

// settleNow decides a Post or a Void by the result of the statement that ends the hold.
func settleNow(ctx context.Context, a *attempt, from, to *account) (Reply, error) {
	a.expires = false
	won, tr, err := a.holdNow()
	switch {
	case err != nil:
		return Reply{}, err
	case won && to.Balance > math.MaxInt64-tr.Settled:
		return Reply{}, fmt.Errorf("%w: more than account %s can hold", ErrInvalid, to.ID)
	case won:
		from.Held -= tr.Amount
		from.Balance -= tr.Settled
		to.Balance += tr.Settled
		if tr.Settled == 0 {
			return a.record(tr, from)
		}
		return a.record(tr, from, to)
	case tr.State == Reserved: // the hold has expired: the refusal ends it
		return a.expireNow(ctx, from)
	case tr.State == Expired:
		return a.s.refuse(tr, ErrExpired)
	default:
		return a.s.refuse(tr, fmt.Errorf("%w: %s", ErrSettled, tr.State))
	}
}

// expireNow ends an expired hold in the transaction that stores the refusal.
func (a *attempt) expireNow(ctx context.Context, from *account) (Reply, error) {
	a.endHold(change{to: Expired})
	if err := a.Flush(ctx); err != nil {
		return Reply{}, err
	}
	won, tr, err := a.holdNow()
	if err != nil {
		return Reply{}, err
	}
	if !won { // another operation ended it first: possible only where accounts are not locked
		return Reply{}, pgtx.ErrRetry
	}
	a.expires = true
	from.Held -= tr.Amount
	a.save(from)
	return a.s.cfg.Encode(tr, ErrExpired)
}

// endHold queues the statement that ends a hold, and one that reads the result. Both come
// after the locks of both accounts, so that clock_timestamp() is read after all waiting.
// now() is the beginning of the transaction: with it, a Post that waited past the end of
// the hold would be in time. Exactly one of Post, Void and Sweep finds the hold reserved.
func (a *attempt) endHold(c change) {
	condition := `expires_at > clock_timestamp()`
	if c.to == Expired {
		condition = `expires_at <= clock_timestamp()`
	}
	a.ended = a.Queue(`
		UPDATE transfers
		SET state = $2, settled = $3, ended_at = clock_timestamp()
		WHERE id = $1
		AND state = 'reserved'
		AND `+condition, a.id, c.to, c.settled)
	a.hold = pgtx.QueueRows[Transfer](a.Tx, selectTransfer+` WHERE id = $1`, a.id)
}

// holdNow returns the hold after that statement, and whether this attempt ended it.
func (a *attempt) holdNow() (won bool, tr Transfer, err error) {
	if len(*a.hold) != 1 {
		return false, tr, fmt.Errorf("%w: transfer %s", ErrNotFound, a.id)
	}
	return a.ended.RowsAffected() == 1, (*a.hold)[0].utc(), nil
}

// expire ends one hold and frees its money, if it has expired.
func (s *Service) expire(ctx context.Context, tr Transfer) (expired bool, err error) {
	o := s.onHold(Request{}, tr, change{to: Expired})
	o.Idempotent = true // only a hold that is still reserved is ended
	o.decide = func(_ context.Context, a *attempt, from, _ *account) (Reply, error) {
		var tr Transfer
		if o.expires, tr, err = a.holdNow(); err != nil {
			return Reply{}, err
		}
		if !o.expires { // no longer reserved, or not expired
			return pgtx.Refuse(Reply{})
		}
		from.Held -= tr.Amount
		a.save(from)
		return Reply{}, nil
	}
	_, err = s.run(ctx, o)
	return o.expires && err == nil, err
}

// sweepPage is how many holds Sweep reads at a time.
const sweepPage = 100

// Sweep ends all expired holds, and returns how many it ended. Each hold is ended in a
// transaction of its own, with the locks of a Post in the same order, so that only one of
// the two ends it. A hold that is busy or stale is left for the next Sweep. Sweep returns
// early when a server is unavailable. The error contains the errors of the first three holds
// that were left, and the number of the others.
func (s *Service) Sweep(ctx context.Context) (swept int, err error) {
	var (
		at   time.Time // of the last hold read, so that those left are not read again
		id   uuid.UUID
		left leftBehind
	)
	for {
		due, err := s.due(ctx, at, id)
		if err != nil {
			return swept, errors.Join(left.err(), err)
		}
		for _, tr := range due {
			at, id = *tr.ExpiresAt, tr.ID
			expired, err := s.expire(ctx, tr)
			if expired {
				swept++
			}
			if err != nil {
				left.add(tr.ID, err)
			}
			if ctx.Err() != nil || isUnavailable(err) {
				return swept, left.err()
			}
		}
		if len(due) < sweepPage {
			return swept, left.err()
		}
	}
}

// isUnavailable reports whether err means that a server is unavailable: the next hold would fail too.
func isUnavailable(err error) bool {
	var locks *UnavailableError
	return errors.As(err, &locks) || errors.Is(err, pgtx.ErrUnreachable)
}

// leftBehind collects the errors of holds that could not be ended. It keeps the first ones:
// ten thousand holds may all fail for the same reason.
type leftBehind struct {
	first []error
	n     int
}

func (l *leftBehind) add(id uuid.UUID, err error) {
	if l.n++; l.n <= 3 {
		l.first = append(l.first, fmt.Errorf("transfer: sweep %s: %w", id, err))
	}
}

func (l *leftBehind) err() error {
	if more := l.n - len(l.first); more > 0 {
		return fmt.Errorf("%w\nand %d more holds", errors.Join(l.first...), more)
	}
	return errors.Join(l.first...)
}

// due lists expired holds by their time of expiry. It takes no lock: whether a hold is still
// reserved is decided under the hold's own locks.
func (s *Service) due(ctx context.Context, at time.Time, id uuid.UUID) (list []Transfer, err error) {
	err = s.db.Read(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		rows, _ := conn.Query(ctx, selectTransfer+`
			WHERE state = 'reserved'
			AND expires_at <= clock_timestamp()
			AND (expires_at, id) > ($1, $2)
			ORDER BY expires_at, id
			LIMIT $3`, at, id, sweepPage)
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Transfer])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("transfer: list expired holds: %w", err)
	}
	return list, nil
}
