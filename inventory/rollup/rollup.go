package rollup

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
)

// Settle is how long a day must be over before it is due.
const Settle = 10 * time.Minute

// chunk is the number of products of a transaction.
const chunk = 100

var (
	//go:embed chunk.sql
	chunkSQL string
	//go:embed due.sql
	dueSQL string
)

// Roller adds up sales. Its fields are required, except Observer. The tables come with inventory.Migrate.
type Roller struct {
	Pool     *pgxpool.Pool
	Locks    locking.Store
	Observer locking.Observer
}

// maxHold bounds the work of one day.
const maxHold = time.Hour

// Run adds up the sales of each day that is due, and returns the days that this call has completed, the oldest
// first. It returns locking.ErrBusy at once if another server is at work. After any error it may be called again.
func (r Roller) Run(ctx context.Context) (completed []time.Time, err error) {
	due, err := r.due(ctx)
	for i := 0; i < len(due) && err == nil; i++ {
		day, did := due[i], false
		o := locking.Options{NoWait: true, MaxHold: maxHold, Observer: r.Observer}
		err = locking.Once(ctx, r.Locks, o, "roll-up/"+day.Format(time.DateOnly),
			func(ctx context.Context) (bool, error) { return r.done(ctx, day) },
			func(ctx context.Context, _ locking.Lease) error { did = true; return r.day(ctx, day) })
		if err == nil && did {
			completed = append(completed, day)
		}
	}
	if err != nil {
		err = fmt.Errorf("rollup: %w", err)
	}
	return completed, err
}

func (r Roller) due(ctx context.Context) ([]time.Time, error) {
	rows, err := r.Pool.Query(ctx, dueSQL, Settle)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[time.Time])
}

func (r Roller) done(ctx context.Context, day time.Time) (done bool, err error) {
	return done, r.Pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM roll_ups WHERE day = $1 AND done_at IS NOT NULL)`, day).Scan(&done)
}

// day adds up chunk by chunk, until all products are done.
func (r Roller) day(ctx context.Context, day time.Time) error {
	for done := false; !done; {
		err := pgx.BeginFunc(ctx, r.Pool, func(tx pgx.Tx) (err error) {
			done, err = next(ctx, tx, day)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", day.Format(time.DateOnly), err)
		}
	}
	return nil
}

// next adds up one chunk.
func next(ctx context.Context, tx pgx.Tx, day time.Time) (done bool, err error) {
	var upto string
	if _, err := tx.Exec(ctx, `INSERT INTO roll_ups (day) VALUES ($1) ON CONFLICT DO NOTHING`, day); err != nil {
		return false, err
	}
	// In a statement of its own: what is read after the wait must be newer than the wait.
	err = tx.QueryRow(ctx, `SELECT upto, done_at IS NOT NULL FROM roll_ups WHERE day = $1 FOR UPDATE`, day).Scan(&upto, &done)
	if err != nil || done {
		return done, err
	}
	return done, tx.QueryRow(ctx, chunkSQL, day, upto, chunk).Scan(&done)
}
