// SPDX-License-Identifier: MIT

package rollup

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/idempotency/pgtx"
)

// Settle is how long a day must be over before it is due.
const Settle = 10 * time.Minute

// piece is the number of movements of a transaction: some hundredths of a second, and a hundredth of the time that
// PostgreSQL gives a statement of the shop.
const piece = 5000

var (
	//go:embed piece.sql
	pieceSQL string
	//go:embed due.sql
	dueSQL string
)

// Roller adds up sales. Its fields are required, except Observer. The tables come with inventory.Migrate.
type Roller struct {
	Pool     *pgxpool.Pool
	Locks    locking.Store
	Observer locking.Observer
	piece    int           // 0: the constant piece
	settle   time.Duration // 0: Settle
}

// maxHold bounds the work of one day.
const maxHold = time.Hour

// Run adds up the sales of each day that is due, and returns the days that this call has completed, the oldest
// first. It returns locking.ErrBusy at once if another server is at work. A day that PostgreSQL refuses to add up does
// not keep the later days waiting: the error has the errors of all such days. After any error Run may be called again.
func (r Roller) Run(ctx context.Context) (completed []time.Time, err error) {
	due, err := r.due(ctx)
	if err != nil {
		return nil, fmt.Errorf("rollup: %w", err)
	}
	var failed []error
	for _, day := range due {
		did, err := r.once(ctx, day)
		if did && err == nil {
			completed = append(completed, day)
		}
		if errors.Is(err, locking.ErrBusy) && len(failed) > 0 {
			break
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("rollup: %w", err))
			if !answered(err) {
				break
			}
		}
	}
	const shown = 3 // many days may fail for one reason
	if more := len(failed) - shown; more > 0 {
		failed = append(failed[:shown], fmt.Errorf("rollup: and %d more days", more))
	}
	return completed, errors.Join(failed...)
}

// answered reports whether err is PostgreSQL's answer to a statement. After another error, such as a lost connection,
// the next day would only wait for the same server.
func answered(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.SeverityUnlocalized == "ERROR"
}

// once adds up a day under its lock, unless it is done. did is false if another server has done it.
func (r Roller) once(ctx context.Context, day time.Time) (did bool, err error) {
	o := locking.Options{NoWait: true, MaxHold: maxHold, Observer: r.Observer}
	err = locking.Once(ctx, r.Locks, o, "roll-up/"+day.Format(time.DateOnly),
		func(ctx context.Context) (bool, error) { return r.done(ctx, day) },
		func(ctx context.Context, _ locking.Lease) error { did = true; return r.day(ctx, day) })
	return did, err
}

func (r Roller) due(ctx context.Context) ([]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, pgtx.Limit) // a silent server enforces no statement_timeout
	defer cancel()
	rows, err := r.Pool.Query(ctx, dueSQL, cmp.Or(r.settle, Settle))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[time.Time])
}

func (r Roller) done(ctx context.Context, day time.Time) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgtx.Limit) // a silent server enforces no statement_timeout
	defer cancel()
	err = r.Pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM roll_ups WHERE day = $1 AND done_at IS NOT NULL)`, day).Scan(&done)
	return done, err
}

// day adds up piece by piece, until all movements are added.
func (r Roller) day(ctx context.Context, day time.Time) error {
	for done := false; !done; {
		var err error
		if done, err = r.next(ctx, day); err != nil {
			return fmt.Errorf("%s: %w", day.Format(time.DateOnly), err)
		}
	}
	return nil
}

// next adds one piece, in one transaction.
func (r Roller) next(ctx context.Context, day time.Time) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgtx.Limit) // a silent server enforces no statement_timeout
	defer cancel()
	err = pgx.BeginFunc(ctx, r.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO roll_ups (day) VALUES ($1) ON CONFLICT DO NOTHING`, day); err != nil {
			return err
		}
		// In a statement of its own: what is read after the wait must be newer than the wait.
		var (
			upto time.Time
			id   int64
		)
		err := tx.QueryRow(ctx, `
			SELECT coalesce(upto_time, day::timestamp AT TIME ZONE 'UTC'), upto_id, done_at IS NOT NULL
			FROM roll_ups
			WHERE day = $1
			FOR UPDATE`, day).Scan(&upto, &id, &done)
		if err != nil || done {
			return err
		}
		return tx.QueryRow(ctx, pieceSQL, day, upto, id, cmp.Or(r.piece, piece)).Scan(&done)
	})
	return done && err == nil, err
}
