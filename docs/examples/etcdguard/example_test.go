// SPDX-License-Identifier: MIT

// Package etcdguard_test is an example to copy: an etcd lease with a fenced write through pglock.Guard.
package etcdguard_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
	"shop/locking/etcdlock"
	"shop/locking/pglock"
)

// save writes the total of a month, unless a newer holder of the lease has written.
func save(ctx context.Context, pool *pgxpool.Pool, resource string, fence locking.Fence, total int) error {
	return pglock.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// The guard is the first statement, before any read on which the decision depends.
		if err := pglock.Guard(ctx, tx, resource, fence); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE example_reports SET total = $1 WHERE month = '2026-11'`, total)
		return err
	})
}

func Example() {
	ctx := context.Background()
	client := must(clientv3.New(etcdlock.Config(strings.Split(os.Getenv("SHOP_ETCD_ENDPOINTS"), ",")...)))
	defer client.Close()
	locks := must(etcdlock.New(ctx, client, 5*time.Second, etcdlock.Options{Prefix: "example"})) // one per process
	defer locks.Close()
	config := must(pgxpool.ParseConfig(os.Getenv("SHOP_POSTGRES_URL")))
	config.ConnConfig.RuntimeParams["lock_timeout"], config.ConnConfig.RuntimeParams["statement_timeout"] = "3s", "5s"
	config.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "5s"
	pool := must(pgxpool.NewWithConfig(ctx, config))
	defer pool.Close()
	must("", pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return pglock.Migrate(ctx, c.Conn()) }))
	must(pool.Exec(ctx, `DROP TABLE IF EXISTS example_reports; CREATE TABLE example_reports AS SELECT '2026-11' AS month, 0 AS total`))

	resource := "report/2026-11@" + locks.Epoch() // fences of two epochs are not comparable
	var late locking.Lease
	under := func(hold func(context.Context, locking.Lease) error) error {
		return locking.Do(ctx, locks, locking.Options{MaxWait: 10 * time.Second}, []string{"report/2026-11"}, hold)
	}
	fmt.Println("first:", under(func(_ context.Context, l locking.Lease) error {
		late = l // paused before its write until the lease has ended
		return nil
	}))
	fmt.Println("second:", under(func(ctx context.Context, l locking.Lease) error { return save(ctx, pool, resource, l.Fence, 2) }))
	fmt.Println("first, late, is refused:", errors.Is(save(ctx, pool, resource, late.Fence, 1), locking.ErrStale))
	// Output:
	// first: <nil>
	// second: <nil>
	// first, late, is refused: true
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
