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

// A batch that runs once at a time, for as long as its connection lives.
func ExampleNewSessions() {
	ctx := context.Background()
	pool, done := open(ctx)
	defer done()
	store, err := pglock.NewSessions(pool, pglock.Options{Prefix: "example/"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	err = locking.Do(ctx, store, locking.Options{MaxHold: locking.NoLimit}, []string{"sales/daily"}, func(ctx context.Context, l locking.Lease) error {
		_, err := store.TryAcquire(ctx, "sales/daily")
		fmt.Println("another batch:", errors.Is(err, locking.ErrBusy))
		fmt.Println("a fence:", l.Fence > 0)
		return nil
	})
	fmt.Println("done:", err)
	// Output:
	// another batch: true
	// a fence: false
	// done: <nil>
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
