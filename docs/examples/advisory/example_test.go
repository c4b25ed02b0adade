// SPDX-License-Identifier: MIT

// Package advisory_test is an example to copy: one transaction at a time for a name that has no row.
package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"

	"shop/locking"
	"shop/locking/pglock"
)

func Example() {
	ctx := context.Background()
	begin := func() pgx.Tx {
		conn, err := pgx.Connect(ctx, os.Getenv("SHOP_POSTGRES_URL"))
		if err != nil {
			panic(err)
		}
		tx, err := conn.Begin(ctx)
		if err != nil {
			panic(err)
		}
		return tx
	}
	first, second := begin(), begin()
	defer first.Conn().Close(ctx)
	defer second.Conn().Close(ctx)
	fmt.Println("first:", pglock.XactLock(ctx, first, "example/import"))
	fmt.Println("second is busy:", errors.Is(pglock.TryXactLock(ctx, second, "example/import"), locking.ErrBusy))
	fmt.Println("first commits:", first.Commit(ctx))
	fmt.Println("second:", pglock.TryXactLock(ctx, second, "example/import"))
	// Output:
	// first: <nil>
	// second is busy: true
	// first commits: <nil>
	// second: <nil>
}
