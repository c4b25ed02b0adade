// SPDX-License-Identifier: MIT

// Package combined_test is an example to copy: one transaction for all requests that wait for a hot row.
package combined_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/combine"
	"shop/locking/pglock"
	"shop/locking/redislock"
)

var errSoldOut = errors.New("sold out")

// seats gives each buyer of a batch a seat, until none is left. A buyer that has one already, from a COMMIT that was not
// answered, keeps it.
func seats(pool *pgxpool.Pool) func(context.Context, locking.Lease, []string) ([]combine.Result[int], error) {
	return func(ctx context.Context, _ locking.Lease, buyers []string) (results []combine.Result[int], err error) {
		err = pglock.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			var left int
			if err := tx.QueryRow(ctx, `SELECT seats FROM example_shows WHERE name = 'hamlet' FOR UPDATE`).Scan(&left); err != nil {
				return err
			}
			rows, _ := tx.Query(ctx, `
				WITH had AS (SELECT buyer, seat FROM example_seats WHERE buyer = ANY ($1)),
				sold AS (
					INSERT INTO example_seats (buyer)
					SELECT b FROM unnest($1::text[]) AS b WHERE b NOT IN (SELECT buyer FROM had) LIMIT $2
					RETURNING buyer, seat),
				counted AS (UPDATE example_shows SET seats = seats - (SELECT count(*) FROM sold) WHERE name = 'hamlet')
				SELECT buyer, seat FROM had UNION ALL SELECT buyer, seat FROM sold`, buyers, left)
			var buyer string
			var seat int
			seatOf := map[string]int{}
			_, err := pgx.ForEachRow(rows, []any{&buyer, &seat}, func() error { seatOf[buyer] = seat; return nil }) // and the error of Query
			for _, b := range buyers {
				if seat, ok := seatOf[b]; ok {
					results = append(results, combine.Result[int]{Answer: seat})
				} else {
					results = append(results, combine.Result[int]{Err: errSoldOut})
				}
			}
			return err
		})
		return results, err
	}
}

func Example() {
	ctx := context.Background()
	client := must(redislock.Connect(os.Getenv("SHOP_REDIS_URL"), 5*time.Second))
	defer client.Close()
	config := must(pgxpool.ParseConfig(os.Getenv("SHOP_POSTGRES_URL")))
	maps.Copy(config.ConnConfig.RuntimeParams, map[string]string{ // no statement waits without bound
		"lock_timeout": "3s", "statement_timeout": "5s", "idle_in_transaction_session_timeout": "5s",
	})
	pool := must(pgxpool.NewWithConfig(ctx, config))
	defer pool.Close()
	must(pool.Exec(ctx, `DROP TABLE IF EXISTS example_shows, example_seats;
		CREATE TABLE example_shows AS SELECT 'hamlet' AS name, 60 AS seats;
		CREATE TABLE example_seats (seat serial, buyer text PRIMARY KEY)`))
	store := must(redislock.New(client, 5*time.Second, redislock.Options{Prefix: "combined"}))
	defer store.Close()
	buyers := must(combine.New(combine.Config[string, int]{Store: store, Apply: seats(pool), Guarded: true, Key: func(b string) string { return b }}))
	defer buyers.Close()
	var all sync.WaitGroup
	var refused atomic.Int64
	for i := range 100 {
		all.Go(func() {
			switch _, err := buyers.Do(ctx, fmt.Sprint("buyer ", i), "show/hamlet"); {
			case errors.Is(err, errSoldOut):
				refused.Add(1)
			case err != nil:
				panic(err)
			}
		})
	}
	all.Wait()
	var sold int
	err := pool.QueryRow(ctx, `SELECT count(DISTINCT seat) FROM example_seats`).Scan(&sold)
	fmt.Println(sold, "seats sold,", refused.Load(), "buyers refused,", err)
	// Output: 60 seats sold, 40 buyers refused, <nil>
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
