// SPDX-License-Identifier: MIT

package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/pglock"
)

// open makes a pool, and the tables in a schema for the examples. done drops the schema.
func open(ctx context.Context) (pool *pgxpool.Pool, done func()) {
	cfg, err := pgxpool.ParseConfig(os.Getenv("SHOP_POSTGRES_URL"))
	if err != nil {
		log.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = "pglock_example"
	pool, err = pgxpool.NewWithConfig(ctx, cfg)
	if err == nil {
		_, err = pool.Exec(ctx, `DROP SCHEMA IF EXISTS pglock_example CASCADE; CREATE SCHEMA pglock_example`)
	}
	if err == nil {
		err = pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return pglock.Migrate(ctx, c.Conn()) })
	}
	if err != nil {
		log.Fatal(err)
	}
	return pool, func() {
		_, _ = pool.Exec(ctx, `DROP SCHEMA pglock_example CASCADE`)
		pool.Close()
	}
}

// A lease in a table, and its fence as the guard of what the holder writes.
func Example() {
	ctx := context.Background()
	pool, done := open(ctx)
	defer done()
	store, err := pglock.New(pool, 6*time.Second, pglock.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	err = locking.Do(ctx, store, locking.Options{}, []string{"report/2026-11"}, func(ctx context.Context, l locking.Lease) error {
		_, err := store.TryAcquire(ctx, "report/2026-11")
		fmt.Println("another holder:", errors.Is(err, locking.ErrBusy))
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return pglock.Guard(ctx, tx, "report/2026-11", l.Fence) // the work follows here
		})
	})
	fmt.Println("done:", err)
	// Output:
	// another holder: true
	// done: <nil>
}

// Many servers start the batch of a day. One runs it, the others skip it, and a later start finds it done. The unique day
// refuses a second result. In a service the lock store has a pool of its own.
func ExampleNewSessions() {
	ctx := context.Background()
	pool, done := open(ctx)
	defer done()
	store, err := pglock.NewSessions(pool, pglock.Options{Prefix: "example/"})
	if err == nil {
		_, err = pool.Exec(ctx, `CREATE TABLE sales (day text PRIMARY KEY, cents bigint NOT NULL)`)
	}
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	const day = "2026-11-28"
	runs := 0
	var start func() error
	start = func() error {
		return locking.Once(ctx, store, locking.Options{NoWait: true, MaxHold: time.Hour}, "sales/"+day,
			func(ctx context.Context) (has bool, err error) {
				err = pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM sales WHERE day = $1)`, day).Scan(&has)
				return has, err
			},
			func(ctx context.Context, _ locking.Lease) error {
				if runs++; runs == 1 {
					fmt.Println("a second start is busy:", errors.Is(start(), locking.ErrBusy))
				}
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { // the work, and its result
					_, err := tx.Exec(ctx, `INSERT INTO sales (day, cents) VALUES ($1, 1780)`, day)
					return err
				})
			})
	}
	fmt.Println("the first:", start())
	fmt.Println("a third:", start())
	fmt.Println("the batch ran:", runs)
	// Output:
	// a second start is busy: true
	// the first: <nil>
	// a third: <nil>
	// the batch ran: 1
}

// A lock of the transaction that does the work: nothing to renew, nothing to release.
func ExampleTryXactLock() {
	ctx := context.Background()
	pool, done := open(ctx)
	defer done()
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := pglock.TryXactLock(ctx, tx, "checkout/alice"); err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, pool, func(second pgx.Tx) error {
			err := pglock.TryXactLock(ctx, second, "checkout/alice")
			fmt.Println("a second click:", errors.Is(err, locking.ErrBusy))
			return nil
		})
	})
	fmt.Println("done:", err)
	// Output:
	// a second click: true
	// done: <nil>
}
