// SPDX-License-Identifier: MIT

package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"shop/locking"
	"shop/locking/mysqllock"
)

// open makes a database for the examples, with the tables and a guard. done drops it.
func open(ctx context.Context) (db *sql.DB, done func()) {
	server, err := sql.Open("mysql", os.Getenv("SHOP_MYSQL_DSN"))
	if err != nil {
		log.Fatal(err)
	}
	db, err = sql.Open("mysql", os.Getenv("SHOP_MYSQL_DSN")+"mysqllock_example")
	if err == nil {
		_, err = server.ExecContext(ctx, `CREATE DATABASE IF NOT EXISTS mysqllock_example`)
	}
	if err == nil {
		err = mysqllock.Migrate(ctx, db)
	}
	if err == nil {
		err = mysqllock.MakeGuards(ctx, db, "report/2026-11")
	}
	if err != nil {
		log.Fatal(err)
	}
	return db, func() {
		_, _ = server.ExecContext(ctx, `DROP DATABASE mysqllock_example`)
		_, _ = db.Close(), server.Close()
	}
}

// A lease in a table, and its fence as the guard of what the holder writes.
func Example() {
	ctx := context.Background()
	db, done := open(ctx)
	defer done()
	store, err := mysqllock.New(db, 6*time.Second, mysqllock.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	err = locking.Do(ctx, store, locking.Options{}, []string{"report/2026-11"}, func(ctx context.Context, l locking.Lease) error {
		_, err := store.TryAcquire(ctx, "report/2026-11")
		fmt.Println("another holder:", errors.Is(err, locking.ErrBusy))
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := mysqllock.Guard(ctx, tx, "report/2026-11", l.Fence); err != nil {
			return err
		}
		// the work follows here
		return locking.Commit(ctx, time.Second, func(context.Context) error { return tx.Commit() })
	})
	fmt.Println("done:", err)
	// Output:
	// another holder: true
	// done: <nil>
}

// A batch that runs once at a time, for as long as its connection lives.
func ExampleNewSessions() {
	ctx := context.Background()
	db, err := sql.Open("mysql", os.Getenv("SHOP_MYSQL_DSN")+"?wait_timeout=86400")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	store, err := mysqllock.NewSessions(db, mysqllock.Options{Prefix: "example/"})
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
