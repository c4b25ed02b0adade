// SPDX-License-Identifier: MIT

// Package guard_test is an example to copy: PostgreSQL refuses the write of a lock holder that is late.
package guard_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"

	"shop/locking"
	"shop/locking/pglock"
)

// report writes the result of a job under the fence of its lock, whatever lock service has granted it.
func report(ctx context.Context, conn *pgx.Conn, fence locking.Fence, result string) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := pglock.Guard(ctx, tx, "report", fence); err != nil {
			return err // locking.ErrStale: a newer holder has written
		}
		_, err := tx.Exec(ctx, `UPDATE example_reports SET result = $1`, result)
		return err
	})
}

func Example() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, os.Getenv("SHOP_POSTGRES_URL"))
	if err != nil {
		panic(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, `
		CREATE TABLE IF NOT EXISTS guards (resource text PRIMARY KEY, fence bigint NOT NULL);
		DELETE FROM guards WHERE resource = 'report';
		DROP TABLE IF EXISTS example_reports; CREATE TABLE example_reports AS SELECT 'none' AS result`); err != nil {
		panic(err)
	}
	fmt.Println("holder 7:", report(ctx, conn, 7, "of 7"))
	fmt.Println("holder 6 is late, and stale:", errors.Is(report(ctx, conn, 6, "of 6"), locking.ErrStale))
	// Output:
	// holder 7: <nil>
	// holder 6 is late, and stale: true
}
