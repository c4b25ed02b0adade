// SPDX-License-Identifier: MIT

// Package redisrow_test is an example to copy: a Redis lock in front of SELECT … FOR UPDATE.
package redisrow_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/pglock"
	"shop/locking/redislock"
)

var errSoldOut = errors.New("sold out")

// book takes one seat. The row lock makes it right. The Redis lock makes it fast: requests
// for one show wait for the Redis lock without a PostgreSQL connection.
func book(ctx context.Context, locks locking.Store, pool *pgxpool.Pool, show string) error {
	wait := locking.Options{MaxWait: 10 * time.Second}
	return locking.Do(ctx, locks, wait, []string{"show/" + show}, func(ctx context.Context, _ locking.Lease) error {
		return pglock.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			var left int
			err := tx.QueryRow(ctx, `SELECT seats FROM example_shows WHERE name = $1 FOR UPDATE`, show).Scan(&left)
			if err != nil || left == 0 {
				return cmp.Or(err, errSoldOut)
			}
			_, err = tx.Exec(ctx, `UPDATE example_shows SET seats = $2 WHERE name = $1`, show, left-1)
			return err
		})
	})
}

func Example() {
	ctx, ttl := context.Background(), 5*time.Second
	client := must(redislock.Connect(os.Getenv("SHOP_REDIS_URL"), ttl)) // for locks only: short timeouts, no retries
	defer client.Close()
	config := must(pgxpool.ParseConfig(os.Getenv("SHOP_POSTGRES_URL")))
	maps.Copy(config.ConnConfig.RuntimeParams, map[string]string{ // no statement waits without bound
		"lock_timeout": "3s", "statement_timeout": "5s", "idle_in_transaction_session_timeout": "5s",
	})
	pool := must(pgxpool.NewWithConfig(ctx, config))
	defer pool.Close()
	must(pool.Exec(ctx, `DROP TABLE IF EXISTS example_shows; CREATE TABLE example_shows AS SELECT 'hamlet' AS name, 5 AS seats`))

	results := make(chan error)
	for _, prefix := range []string{"example", "other"} { // two stores that do not exclude each other, as if Redis had lost the lock
		locks := must(redislock.New(client, ttl, redislock.Options{Prefix: prefix}))
		defer locks.Close()
		for range 4 {
			go func() { results <- book(ctx, locks, pool, "hamlet") }()
		}
	}
	counted := map[error]int{}
	for range 2 * 4 {
		counted[<-results]++
	}
	fmt.Println(counted)
	// Output: map[<nil>:5 sold out:3]
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
